package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/settled-dev/settled/cmd/settled/internal/stage"
	"github.com/settled-dev/settled/sdk/client"
)

// mark is the sign in front of a line.
type mark struct{ sign, ascii, colour string }

// The signs. Unknown is violet and never red: it is no failure.
var (
	markPlain   = mark{"·", ".", "2"}
	markSent    = mark{"→", ">", "36"}
	markUnknown = mark{"◆", "?", "35"}
	markAbsent  = mark{"○", "o", "34"}
	markDone    = mark{"✓", "+", "32"}
	markPerson  = mark{"▲", "!", "33"}
	markKill    = mark{"✗", "X", "1"}
)

// teller prints the story: a line when something becomes known of a shown
// effect, and a tally now and then. It is safe for concurrent use.
type teller struct {
	w     io.Writer
	o     demoOptions
	shown map[string]part

	mu      sync.Mutex
	started time.Time
	doubted map[string]bool // it was said that an early empty read is not believed
	again   map[string]bool // it was said that a second read is needed
	calls   map[string]int
	tallied time.Time
	last    string
}

func newTeller(w io.Writer, o demoOptions, cast []part) *teller {
	t := &teller{
		w: w, o: o, shown: map[string]part{}, started: time.Now(),
		doubted: map[string]bool{}, again: map[string]bool{}, calls: map[string]int{},
	}
	for _, p := range cast {
		if p.title != "" {
			t.shown[p.key] = p
		}
	}
	return t
}

func (t *teller) paint(colour, text string) string {
	if !t.o.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (t *teller) intro() {
	fmt.Fprintf(t.w, "settled demo: %d effects, two systems that lose answers: a ticket desk (HTTP), a git repository (commands).\n", t.o.effects)
	fmt.Fprintln(t.w, "A missing answer is no failure: the outcome is unknown, and nothing is sent again until a read settles it.")
	fmt.Fprintf(t.w, "%d of them are shown, one for each thing that goes wrong; in [brackets] what settled cannot see.\n\n", len(t.shown))
}

// start sets the zero of all times shown.
func (t *teller) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started, t.tallied = time.Now(), time.Now()
}

// say prints one line; key may be empty.
func (t *teller) say(m mark, key, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sign := m.sign
	if t.o.plain {
		sign = m.ascii
	}
	who := ""
	if key != "" {
		who = fmt.Sprintf("%-22s ", short(key))
	}
	fmt.Fprintf(t.w, "%5.1fs %s %s%s\n", time.Since(t.started).Seconds(), t.paint(m.colour, sign), who, fmt.Sprintf(format, args...))
}

// tallyEvery is how often the whole is summed up while nothing else is said.
const tallyEvery = 3 * time.Second

func (t *teller) tally(effects []client.Effect) {
	count := map[string]int{}
	for _, e := range effects {
		switch e.Phase {
		case "succeeded":
			count["done"]++
		case "unknown", "reconciling":
			count["unknown"]++
		case "dispatching", "verifying", "acknowledged":
			count["in flight or being verified"]++
		case "needs_human":
			count["waiting for a person"]++
		default:
			count["not sent"]++
		}
	}
	var parts []string
	for _, word := range []string{"done", "in flight or being verified", "unknown", "not sent", "waiting for a person"} {
		if count[word] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[word], word))
		}
	}
	text := strings.Join(parts, ", ")
	t.mu.Lock()
	quiet := time.Since(t.tallied) < tallyEvery || text == t.last
	if !quiet {
		t.tallied, t.last = time.Now(), text
	}
	t.mu.Unlock()
	if !quiet {
		t.say(markPlain, "", "%s", t.paint("2", "of all: "+text))
	}
}

// event says what became known of a shown effect, in the words of the model.
func (t *teller) event(ctx context.Context, c *client.Client, e client.Event) {
	p, ok := t.shown[e.Key]
	if !ok {
		return
	}
	switch {
	case e.To == "dispatching":
		t.sent(p, e)
	case e.From == "dispatching" && e.To == "unknown":
		t.say(markUnknown, e.Key, "unknown: %s; checking the original request, will not send again", cause(e.Because))
	case e.From == "dispatching" && e.To == "authorized":
		t.say(markAbsent, e.Key, "answered: not executed, come back later; will be sent after the time that it named")
	case e.From == "dispatching" && e.To == "verifying":
		t.say(markPlain, e.Key, "answered: done; reading it back before it is believed")
	case e.From == "reconciling" && e.To == "unknown":
		t.empty(ctx, c, e)
	case e.To == "confirmed_absent":
		t.say(markAbsent, e.Key, "a second complete read agrees: confirmed not executed")
	case e.To == "succeeded", e.To == "needs_human":
		t.ended(ctx, c, e)
	}
}

func (t *teller) sent(p part, e client.Event) {
	t.mu.Lock()
	t.calls[e.Key]++
	n := t.calls[e.Key]
	t.mu.Unlock()
	if n == 1 {
		t.say(markSent, e.Key, "sent %s", t.paint("2", "["+p.title+": "+p.truth+"]"))
		return
	}
	t.say(markSent, e.Key, "sent again, once: attempt %d, same key, same payload", n)
}

// cause names why there is no answer.
func cause(because string) string {
	switch because {
	case "connection_lost":
		return "the connection died before the answer"
	case "server_error":
		return "answered 500"
	case "crash":
		return "the daemon died during the call"
	case "adapter_error":
		return "the command died without an answer"
	case "timeout":
		return "no answer in time"
	}
	return strings.ReplaceAll(because, "_", " ")
}

// empty is a read that saw nothing and is not believed.
func (t *teller) empty(ctx context.Context, c *client.Client, e client.Event) {
	t.mu.Lock()
	first, second := !t.doubted[e.Key], !t.again[e.Key]
	early := strings.HasPrefix(e.Because, "an unanswered request may still")
	if early {
		t.doubted[e.Key] = true
	} else {
		t.again[e.Key] = true
	}
	started := t.started
	t.mu.Unlock()
	switch {
	case early && first:
		until := "the grace is over"
		if now, err := c.Effect(ctx, e.Key); err == nil && now.Unknown != nil && now.Unknown.SettleNotBefore != nil {
			at := *now.Unknown.SettleNotBefore
			until = fmt.Sprintf("%s (%.1fs)", at.Local().Format(time.TimeOnly), at.Sub(started).Seconds())
		}
		t.say(markUnknown, e.Key, "early read: nothing; not believed before %s, for the request may still arrive", until)
	case !early && second:
		t.say(markUnknown, e.Key, "read after that time: still nothing; %s", e.Because)
	}
}

// ended says how an effect came to rest.
func (t *teller) ended(ctx context.Context, c *client.Client, e client.Event) {
	now, err := c.Effect(ctx, e.Key)
	if err != nil {
		return // the daemon is gone; the table will tell
	}
	if e.To == "needs_human" {
		t.say(markPerson, e.Key, "read: one object, but %s; %s; nothing is sent", now.Finding, now.Words)
		return
	}
	object := "one object"
	if now.ObjectID != nil {
		object = "exactly one object, " + (*now.ObjectID)[:min(12, len(*now.ObjectID))]
	}
	t.say(markDone, e.Key, "read: %s; %s", object, now.Words)
}

// kept says how to look at what was left running.
func (t *teller) kept(s *stage.Stage, binary string) {
	daemon, desk := s.DaemonPID(), s.DeskPID()
	fmt.Fprintf(t.w, "\nDaemon (%d), desk (%d) and directory are kept. Look around:\n\n", daemon, desk)
	fmt.Fprintf(t.w, "  export SETTLED_SOCKET=%s\n  %s list\n  %s review\n", s.Socket(), binary, binary)
	for _, p := range t.shown {
		if p.title == "late commit" {
			fmt.Fprintf(t.w, "  %s show %s\n", binary, p.key)
		}
	}
	fmt.Fprintf(t.w, "\nTo end it:\n\n  kill %d %d && sleep 4 && rm -r %s\n", daemon, desk, s.Path())
}
