package sdk_test

import (
	"context"
	"fmt"

	"github.com/settled-dev/settled/sdk"
)

func ExampleSecret() {
	token := sdk.NewSecret("sk_live_4242")
	fmt.Println(token)
	fmt.Printf("%+v\n", struct{ Token sdk.Secret }{token})
	// Output:
	// [redacted]
	// {Token:[redacted]}
}

func ExampleJSONSchema() {
	type Invoice struct {
		Customer string `json:"customer" doc:"Who pays"`
		Cents    int64  `json:"cents" min:"1"`
		Note     string `json:"note,omitempty" max:"80"`
	}
	schema, err := sdk.JSONSchema[Invoice]()
	fmt.Println(string(schema), err)
	// Output: {"$schema":"https://json-schema.org/draft/2020-12/schema","additionalProperties":false,"properties":{"cents":{"minimum":1,"type":"integer"},"customer":{"description":"Who pays","type":"string"},"note":{"maxLength":80,"type":"string"}},"required":["customer","cents"],"type":"object"} <nil>
}

// An adapter for a destination that takes notes and cannot be read back. The
// program's main function would be serve.Main(adapter).
func ExampleDefine() {
	type Config struct {
		URL string `json:"url"`
	}
	type Note struct {
		Text string `json:"text" min:"1"`
	}
	adapter := sdk.Define[Config, *sdk.API]{
		Name: "notes", Version: "0.1.0",
		Open: func(_ context.Context, env sdk.Env, c Config) (*sdk.API, error) { return env.HTTP(c.URL), nil },
		Actions: []sdk.Action[*sdk.API]{sdk.NewAction("post-note", sdk.Spec{},
			func(api *sdk.API, ctx context.Context, op sdk.Op[Note]) (sdk.Outcome, error) {
				res, err := api.Send(ctx, "POST", "/notes", op.Payload)
				if err != nil {
					return nil, err
				}
				if res.Status != 201 {
					return res.Outcome(), nil
				}
				return sdk.Done("note", res.Header.Get("Location")), nil
			}, nil)},
	}.Adapter()

	ctx := context.Background()
	_, _ = adapter.Configure(ctx, sdk.Configuration{Config: []byte(`{"url":"http://notes.invalid"}`)})
	answer, _ := adapter.Dispatch(ctx, sdk.DispatchRequest{Operation: sdk.Operation{Action: "post-note", Payload: []byte(`{"text":""}`)}})
	rejected := answer.Outcome.(*sdk.Rejected)
	fmt.Println(rejected.Diagnostics[0].Pointer, rejected.Diagnostics[0].Summary)
	// Output: /text must have at least 1 characters
}
