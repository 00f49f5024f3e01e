package wire

import (
	"maps"

	"github.com/settled-dev/settled/sdk"
	pb "github.com/settled-dev/settled/sdk/proto/settled/adapter/v1"
)

// DescriptionToProto maps a description to its message.
func DescriptionToProto(d sdk.Description) *pb.DescribeResponse {
	return &pb.DescribeResponse{
		Name: d.Name, Version: d.Version, Sdk: d.SDK, ProtocolMinor: d.ProtocolMinor, Features: d.Features,
		ConfigSchema: d.ConfigSchema, Actions: each(d.Actions, actionToProto), Egress: d.Egress,
	}
}

// DescriptionFromProto is the reverse of [DescriptionToProto].
func DescriptionFromProto(m *pb.DescribeResponse) sdk.Description {
	return sdk.Description{
		Name: m.GetName(), Version: m.GetVersion(), SDK: m.GetSdk(), ProtocolMinor: m.GetProtocolMinor(),
		Features: m.GetFeatures(), ConfigSchema: m.GetConfigSchema(), Actions: each(m.GetActions(), actionFromProto),
		Egress: m.GetEgress(),
	}
}

func actionToProto(a sdk.ActionSpec) *pb.ActionSpec {
	return &pb.ActionSpec{
		Name: a.Name, Summary: a.Summary, PayloadSchema: a.PayloadSchema,
		Idempotency: idempotencyToProto(a.Idempotency), Read: readSpecToProto(a.Read),
		Limits: &pb.Limits{
			MaxPayloadBytes: a.Limits.MaxPayload, MaxConcurrency: a.Limits.MaxConcurrency,
			PerSecond: a.Limits.PerSecond, Burst: a.Limits.Burst,
		},
		Reversal: &pb.Reversal{
			Kind:   number[pb.Reversal_Kind](a.Reversal.Kind, sdk.Compensatable),
			Action: a.Reversal.Action, Window: span(a.Reversal.Window),
		},
		LateEffectBound: optSpan(a.LateEffectBound), DispatchTimeout: span(a.DispatchTimeout),
		SupportsPrecondition: a.Precondition, Deprecated: a.Deprecated, Outcomes: each(a.Outcomes, ruleToProto),
		Postcondition: a.Postcondition, Consequences: each(a.Consequences, func(c sdk.Consequence) pb.Consequence {
			return number[pb.Consequence](c, sdk.ConsequenceTrigger)
		}),
		HumanOnly: a.HumanOnly, Sensitive: a.Sensitive,
	}
}

func actionFromProto(m *pb.ActionSpec) sdk.ActionSpec {
	l, r := m.GetLimits(), m.GetReversal()
	return sdk.ActionSpec{
		Name: m.GetName(), Summary: m.GetSummary(), PayloadSchema: m.GetPayloadSchema(),
		Idempotency: idempotencyFromProto(m.GetIdempotency()), Read: readSpecFromProto(m.GetRead()),
		Limits: sdk.Limits{
			MaxPayload: l.GetMaxPayloadBytes(), MaxConcurrency: l.GetMaxConcurrency(),
			PerSecond: l.GetPerSecond(), Burst: l.GetBurst(),
		},
		Reversal: sdk.Reversal{
			Kind:   number[sdk.ReversalKind](r.GetKind(), pb.Reversal_COMPENSATABLE),
			Action: r.GetAction(), Window: length(r.GetWindow()),
		},
		LateEffectBound: optLength(m.GetLateEffectBound()), DispatchTimeout: length(m.GetDispatchTimeout()),
		Precondition: m.GetSupportsPrecondition(), Deprecated: m.GetDeprecated(),
		Outcomes:      each(m.GetOutcomes(), ruleFromProto),
		Postcondition: m.GetPostcondition(), Consequences: each(m.GetConsequences(), func(c pb.Consequence) sdk.Consequence {
			return number[sdk.Consequence](c, pb.Consequence_TRIGGER)
		}),
		HumanOnly: m.GetHumanOnly(), Sensitive: m.GetSensitive(),
	}
}

func ruleToProto(r sdk.OutcomeRule) *pb.OutcomeRule {
	return &pb.OutcomeRule{Code: r.Code, Class: number[pb.OutcomeClass](r.Class, sdk.ClassExecuted)}
}

func ruleFromProto(m *pb.OutcomeRule) sdk.OutcomeRule {
	return sdk.OutcomeRule{Code: m.GetCode(), Class: number[sdk.OutcomeClass](m.GetClass(), pb.OutcomeClass_EXECUTED)}
}

func idempotencyToProto(i sdk.Idempotency) *pb.Idempotency {
	return &pb.Idempotency{
		Mode: number[pb.Idempotency_Mode](i.Mode, sdk.IdempotencyConditional), Retention: optSpan(i.Retention),
		SameKeyOtherPayload: number[pb.Idempotency_Mismatch](i.SameKeyOtherPayload, sdk.MismatchExecutesAgain),
		KeyMaxBytes:         i.KeyMaxBytes, KeyScope: i.KeyScope, CachesRejections: i.CachesRejections,
		Replay: number[pb.Idempotency_Replay](i.Replay, sdk.ReplayCurrentState), Covers: i.Covers, VerifiedOn: i.VerifiedOn,
	}
}

func idempotencyFromProto(m *pb.Idempotency) sdk.Idempotency {
	return sdk.Idempotency{
		Mode:                number[sdk.IdempotencyMode](m.GetMode(), pb.Idempotency_CONDITIONAL),
		Retention:           optLength(m.GetRetention()),
		SameKeyOtherPayload: number[sdk.Mismatch](m.GetSameKeyOtherPayload(), pb.Idempotency_EXECUTES_AGAIN),
		KeyMaxBytes:         m.GetKeyMaxBytes(), KeyScope: m.GetKeyScope(), CachesRejections: m.GetCachesRejections(),
		Replay: number[sdk.Replay](m.GetReplay(), pb.Idempotency_CURRENT_STATE),
		Covers: m.GetCovers(), VerifiedOn: m.GetVerifiedOn(),
	}
}

func readSpecToProto(r sdk.ReadSpec) *pb.ReadSpec {
	return &pb.ReadSpec{
		Lookup:    number[pb.ReadSpec_Lookup](r.Lookup, sdk.LookupWindow),
		Authority: number[pb.Authority](r.Authority, sdk.Advisory),
		MaxLag:    optSpan(r.MaxLag), Horizon: span(r.Horizon), Permissions: r.Permissions,
		ProvesAbsence: r.ProvesAbsence, View: r.View,
	}
}

func readSpecFromProto(m *pb.ReadSpec) sdk.ReadSpec {
	return sdk.ReadSpec{
		Lookup:    number[sdk.Lookup](m.GetLookup(), pb.ReadSpec_WINDOW),
		Authority: number[sdk.Authority](m.GetAuthority(), pb.Authority_ADVISORY),
		MaxLag:    optLength(m.GetMaxLag()), Horizon: length(m.GetHorizon()), Permissions: m.GetPermissions(),
		ProvesAbsence: m.GetProvesAbsence(), View: m.GetView(),
	}
}

// ConfigurationToProto maps a configuration, secrets included: the message is never logged.
func ConfigurationToProto(c sdk.Configuration) *pb.ConfigureRequest {
	var secrets map[string][]byte
	if c.Secrets != nil {
		secrets = make(map[string][]byte, len(c.Secrets))
		for name, v := range c.Secrets {
			secrets[name] = []byte(v)
		}
	}
	return &pb.ConfigureRequest{
		Destination: c.Destination, Config: c.Config, Secrets: secrets, StateDir: c.StateDir, ProxyUrl: c.ProxyURL,
		ExtraCaPem: c.ExtraCAPEM, HostVersion: c.HostVersion, ProtocolMinor: c.ProtocolMinor,
		HostFeatures: c.HostFeatures,
	}
}

// ConfigurationFromProto is the reverse of [ConfigurationToProto].
func ConfigurationFromProto(m *pb.ConfigureRequest) sdk.Configuration {
	var secrets map[string]string
	if in := m.GetSecrets(); in != nil {
		secrets = make(map[string]string, len(in))
		for name, v := range in {
			secrets[name] = string(v)
		}
	}
	return sdk.Configuration{
		Destination: m.GetDestination(), Config: m.GetConfig(), Secrets: secrets, StateDir: m.GetStateDir(),
		ProxyURL: m.GetProxyUrl(), ExtraCAPEM: m.GetExtraCaPem(), HostVersion: m.GetHostVersion(),
		ProtocolMinor: m.GetProtocolMinor(), HostFeatures: m.GetHostFeatures(),
	}
}

// ConfiguredToProto maps the answer to Configure.
func ConfiguredToProto(c sdk.Configured) *pb.ConfigureResponse {
	return &pb.ConfigureResponse{
		Diagnostics: each(c.Diagnostics, diagnosticToProto),
		Actions:     each(c.Actions, actionToProto), Identity: c.Identity,
	}
}

// ConfiguredFromProto is the reverse of [ConfiguredToProto].
func ConfiguredFromProto(m *pb.ConfigureResponse) sdk.Configured {
	return sdk.Configured{
		Diagnostics: each(m.GetDiagnostics(), diagnosticFromProto),
		Actions:     each(m.GetActions(), actionFromProto), Identity: m.GetIdentity(),
	}
}

func diagnosticToProto(d sdk.Diagnostic) *pb.Diagnostic {
	severity := pb.Diagnostic_ERROR
	if d.Warning {
		severity = pb.Diagnostic_WARNING
	}
	return &pb.Diagnostic{Severity: severity, Pointer: d.Pointer, Summary: d.Summary, Detail: d.Detail}
}

func diagnosticFromProto(m *pb.Diagnostic) sdk.Diagnostic {
	return sdk.Diagnostic{
		Warning: m.GetSeverity() == pb.Diagnostic_WARNING, Pointer: m.GetPointer(),
		Summary: m.GetSummary(), Detail: m.GetDetail(),
	}
}

// HealthToProto maps the answer to Check.
func HealthToProto(h sdk.Health) *pb.CheckResponse {
	return &pb.CheckResponse{
		Status:      number[pb.CheckResponse_Status](h.Status, sdk.HealthDown),
		Diagnostics: each(h.Diagnostics, diagnosticToProto), ProvenPermissions: h.Permissions, ClockSkew: optSpan(h.ClockSkew),
	}
}

// HealthFromProto is the reverse of [HealthToProto].
func HealthFromProto(m *pb.CheckResponse) sdk.Health {
	return sdk.Health{
		Status:      number[sdk.HealthStatus](m.GetStatus(), pb.CheckResponse_DOWN),
		Diagnostics: each(m.GetDiagnostics(), diagnosticFromProto), Permissions: m.GetProvenPermissions(),
		ClockSkew: optLength(m.GetClockSkew()),
	}
}

func copyFields(in map[string]string) map[string]string { return maps.Clone(in) }
