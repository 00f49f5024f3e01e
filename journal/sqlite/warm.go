package sqlite

import "github.com/settled-dev/settled/journal"

// Limits of what the committer keeps at hand.
const (
	maxWarm        = 4096
	maxWarmPayload = 16 << 10
)

// warmth keeps effects whose call is in flight, because the answer is the next
// thing that is written about them: without it every answer would read the row,
// the intent and the attempts again. The committer alone uses it.
//
// An entry is what the last COMMIT left. Whatever changes an effect drops its
// entry first, so an operation of the same batch reads the file; a batch that
// fails leaves fewer entries, never wrong ones.
type warmth map[string]warm

type warm struct {
	e         journal.Effect
	lastEvent int64
}

// touched notes what an operation has written, and forgets what was known of it.
func (b *batch) touched(w warmth, tx *Tx) {
	for _, r := range tx.order {
		if r.changed {
			delete(w, r.e.Key)
			b.written[r.e.Key] = r
		}
	}
	for _, key := range tx.noted { // the row has a newer line than its record says
		delete(w, key)
		delete(b.written, key)
	}
}

// keep takes what a committed batch left in flight.
func (w warmth) keep(written map[string]*record) {
	for key, r := range written {
		if r.e.Phase == journal.Dispatching && len(r.e.Payload) <= maxWarmPayload && len(w) < maxWarm {
			w[key] = warm{r.e, r.lastEvent}
		}
	}
}
