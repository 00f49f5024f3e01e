package daemon

// VerifyReport is what checking the audit chain and the journal found.
type VerifyReport struct {
	OK          bool
	Checked     int64  // events looked at
	Head        string // SEQ:HASH of the newest
	Problems    []string
	CouldNotRun string // why nothing is known; "" = the check ran to its end
}

// JournalStats are numbers about the journal, by name.
type JournalStats map[string]any

// PruneReport says what the retention rules let go.
type PruneReport struct {
	Effects  int64 // whole effects; their keys stay in the ledger
	Payloads int64 // payloads and evidence bodies; their digests stay
}
