package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/settled-dev/settled/sdk/client"
)

// The exit statuses of every client verb.
const (
	exitDone        = 0
	exitError       = 1
	exitUsage       = 2
	exitNotDone     = 3  // did not happen
	exitUnknown     = 4  // outcome unknown, or in review
	exitTimeout     = 5  // the wait is over, nothing was sent
	exitUnreachable = 6  // no daemon
	exitConflict    = 7  // key bound to another request, stale sequence
	exitTampered    = 8  // verify found tampering
	exitNotVerified = 9  // verify could not run
	exitByPerson    = 10 // compensated or abandoned: look at it
)

// exit is an error with its status and what to type next. Without err it was printed already.
type exit struct {
	code int
	err  error
	next string
}

func (x *exit) Error() string {
	if x.err == nil {
		return fmt.Sprintf("exit %d", x.code)
	}
	return x.err.Error()
}

func (x *exit) Unwrap() error { return x.err }

func (x *exit) print(w io.Writer) {
	if x.err == nil {
		return
	}
	fmt.Fprintf(w, "settled: %s\n", strings.TrimSpace(x.err.Error()))
	if x.next != "" {
		fmt.Fprintf(w, "  type: %s\n", x.next)
	}
}

func usage(err error, next string) *exit { return &exit{code: exitUsage, err: err, next: next} }

func usagef(next, format string, args ...any) *exit { return usage(fmt.Errorf(format, args...), next) }

// kind says what a lost connection means for a verb.
type kind int

const (
	reading kind = iota // nothing was asked to change
	writing             // something may have been recorded
)

// asExit gives an error its exit status.
func asExit(err error, k kind) error {
	var (
		x    *exit
		gone *client.UnreachableError
		lost *client.LostError
		p    *client.Problem
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &x):
		return x
	case errors.As(err, &gone):
		return &exit{exitUnreachable, gone, "settled serve   (or: systemctl start settled; another socket: --socket PATH)"}
	case errors.As(err, &p):
		return problemExit(p)
	case errors.As(err, &lost) && k == writing:
		return &exit{exitUnknown, lost, "the same again: it is recorded once"}
	case errors.As(err, &lost), errors.Is(err, context.Canceled):
		return &exit{exitUnreachable, err, "settled status"}
	}
	return &exit{code: exitError, err: err}
}

// problemExit is the table of refusals.
func problemExit(p *client.Problem) *exit {
	x := &exit{code: exitError, err: p}
	switch p.Code {
	case client.CodeKeyConflict:
		x.code, x.next = exitConflict, "settled show "+quote(p.Key)+"   (a new intent needs a new version of the key)"
	case client.CodeStale:
		x.code, x.next = exitConflict, fmt.Sprintf("settled show %s   (it is %s now, seq %d)", quote(p.Key), p.Phase, p.Seq)
	case client.CodeInvalid, client.CodeTooLarge:
		x.code, x.next = exitUsage, "the same with that mended"
	case client.CodePhaseRefused:
		if p.MayHaveBeenSent && p.Phase != "succeeded" { // that it happened once is known
			x.code = exitUnknown
		}
		x.next = "settled show " + quote(p.Key)
	case client.CodeSubmissionUnknown:
		x.code, x.next = exitUnknown, "the same again with the same key: it is recorded once"
	case client.CodeBusy, client.CodeOutage, client.CodeDraining:
		x.next = fmt.Sprintf("the same again in %d s", max(1, p.RetryAfterSeconds))
	case client.CodeNotFound:
		x.next = whereToLook(p.Instance)
	case client.CodeJournalFull:
		x.next = "settled journal stats"
	}
	return x
}

// whereToLook names the list in which a name that was not found would be.
func whereToLook(instance string) string {
	for _, kind := range []string{"destination", "schedule"} {
		if strings.Contains(instance, "/"+kind+"s/") {
			return "settled " + kind + " list"
		}
	}
	if strings.Contains(instance, "/holds/") {
		return "settled hold"
	}
	return "settled list"
}

// byPhase is the exit status of wait and submit --wait for an effect that rests.
func byPhase(e client.Effect) int {
	switch e.Phase {
	case "succeeded":
		return exitDone
	case "failed", "rolled_back":
		return exitNotDone
	case "compensated", "abandoned":
		return exitByPerson
	case "needs_human", "repairing":
		return exitUnknown
	}
	return timedOut(e)
}

// timedOut is the exit status when the time is over and the effect does not rest.
func timedOut(e client.Effect) int {
	if e.MayHaveBeenSent() {
		return exitUnknown
	}
	return exitTimeout
}

// quote spells an argument for a shell. Keys need none, other text may.
func quote(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\n\"'`$&|;<>()*?[]{}~!#\\") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
