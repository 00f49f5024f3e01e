package journal

import (
	"fmt"

	"github.com/settled-dev/settled/journal/mutant"
)

// Transition is one legal move. The numbers are those of the model.
type Transition struct {
	Number   int
	From, To Phase
}

func fan(n int, to Phase, from ...Phase) []Transition {
	out := make([]Transition, len(from))
	for i, f := range from {
		out[i] = Transition{n, f, to}
	}
	return out
}

// Transitions lists every legal move, in the order of the model. The journal's
// database enforces the same list.
func Transitions() []Transition {
	var t []Transition
	for _, part := range [][]Transition{
		fan(1, Prepared, New),
		fan(2, Authorized, Prepared),
		fan(3, Failed, Prepared),
		fan(4, Dispatching, Authorized),
		fan(5, Prepared, Authorized),
		fan(6, Failed, Prepared, Authorized),
		fan(7, Authorized, Dispatching),
		fan(8, Failed, Dispatching),
		fan(9, Acknowledged, Dispatching),
		fan(10, Verifying, Dispatching),
		fan(11, Unknown, Dispatching),
		fan(12, Verifying, Acknowledged),
		fan(13, Unknown, Acknowledged),
		fan(14, Failed, Acknowledged, Verifying, Unknown, Reconciling),
		fan(15, Succeeded, Verifying),
		fan(16, Unknown, Verifying),
		fan(17, NeedsHuman, Verifying),
		fan(18, Reconciling, Unknown),
		fan(19, Unknown, Reconciling),
		fan(20, Verifying, Reconciling),
		fan(21, ConfirmedAbsent, Reconciling),
		fan(22, NeedsHuman, Reconciling),
		fan(23, NeedsHuman, Unknown),
		fan(24, Authorized, ConfirmedAbsent),
		fan(25, Failed, ConfirmedAbsent),
		fan(26, Unknown, ConfirmedAbsent, Prepared, Authorized),
		fan(27, Verifying, Unknown, Reconciling, ConfirmedAbsent, Prepared, Authorized, NeedsHuman),
		fan(28, Reconciling, NeedsHuman),
		fan(29, ConfirmedAbsent, NeedsHuman),
		fan(30, Verifying, NeedsHuman),
		fan(31, Repairing, NeedsHuman),
		fan(32, Succeeded, Repairing), fan(32, RolledBack, Repairing), fan(32, Compensated, Repairing),
		fan(33, NeedsHuman, Repairing),
		fan(34, Abandoned, NeedsHuman),
		fan(35, NeedsHuman, Succeeded, Failed, RolledBack, Compensated, Abandoned),
		fan(36, Failed, Prepared, Authorized),
		fan(37, Prepared, Failed),
		fan(38, NeedsHuman, Authorized),
		fan(39, Reconciling, Unknown), fan(39, ConfirmedAbsent, Reconciling), fan(39, Verifying, Reconciling),
		fan(40, Reconciling, Unknown), fan(40, Verifying, Reconciling), fan(40, Unknown, Reconciling),
		fan(41, Unknown, Prepared, Authorized, Dispatching, Acknowledged, Verifying, Reconciling, ConfirmedAbsent),
		fan(42, Unknown, New),
	} {
		t = append(t, part...)
	}
	if mutant.UnknownToAuthorized {
		t = append(t, Transition{24, Unknown, Authorized})
	}
	return t
}

// legalMoves is [Transitions] as a set, made once; nothing ever writes to it.
var legalMoves = func() map[Transition]bool {
	set := map[Transition]bool{}
	for _, t := range Transitions() {
		set[t] = true
	}
	return set
}()

// legal reports whether the model lists the move under this number.
func legal(n int, from, to Phase) bool { return legalMoves[Transition{n, from, to}] }

// IllegalError names an event that a phase does not take. The effect is unchanged.
type IllegalError struct {
	Phase Phase
	Event Kind
	Why   string
}

func (x *IllegalError) Error() string {
	s := fmt.Sprintf("event %s is illegal in phase %s", x.Event, orElse(string(x.Phase), "new"))
	if x.Why != "" {
		s += ": " + x.Why
	}
	return s
}
