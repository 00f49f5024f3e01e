package mail_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settled-dev/settled/plugins/mail"
	"github.com/settled-dev/settled/sdk"
)

// script is what a server says to each command, by its first word; "." is the
// end of the message and "greeting" comes first. An answer that does not end
// with a line break is followed by the end of the connection, and so is "".
type script map[string]string

// fakeSMTP speaks as scripted and counts the messages that were ended.
type fakeSMTP struct {
	listener net.Listener
	script   script
	wait     sync.WaitGroup

	mu       sync.Mutex
	ended    int
	commands []string
	body     string
}

func startFake(t *testing.T, s script) *fakeSMTP {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSMTP{listener: l, script: s}
	f.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.wait.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); f.wait.Wait() })
	return f
}

func (f *fakeSMTP) say(c net.Conn, word, byDefault string) bool {
	answer, scripted := f.script[word]
	if !scripted {
		answer = byDefault
	}
	_, err := c.Write([]byte(answer))
	return err == nil && strings.HasSuffix(answer, "\n")
}

func (f *fakeSMTP) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	if !f.say(c, "greeting", "220 fake\r\n") {
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		f.mu.Lock()
		f.commands = append(f.commands, line)
		f.mu.Unlock()
		word, _, _ := strings.Cut(strings.ToUpper(line), " ")
		if _, named := f.script[line]; named {
			word = line
		}
		byDefault := "250 2.0.0 Ok\r\n"
		switch word {
		case "DATA":
			byDefault = "354 go on\r\n"
		case "QUIT":
			_ = f.say(c, word, "221 bye\r\n")
			return
		case "EHLO":
			byDefault = "250-fake\r\n250-SIZE 1000\r\n250 AUTH PLAIN LOGIN\r\n"
		case "AUTH":
			byDefault = "235 welcome\r\n"
		}
		if !f.say(c, word, byDefault) {
			return
		}
		if word == "DATA" && strings.HasPrefix(f.answer("DATA", byDefault), "354") && !f.message(c, in) {
			return
		}
	}
}

func (f *fakeSMTP) answer(word, byDefault string) string {
	if a, ok := f.script[word]; ok {
		return a
	}
	return byDefault
}

func (f *fakeSMTP) message(c net.Conn, in *bufio.Reader) bool {
	var body strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return false
		}
		if line == ".\r\n" {
			break
		}
		body.WriteString(strings.TrimPrefix(line, "."))
	}
	f.mu.Lock()
	f.ended++
	f.body = body.String()
	f.mu.Unlock()
	return f.say(c, ".", "250 2.0.0 Ok: queued as 102BE98C09A\r\n")
}

func (f *fakeSMTP) messages() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

const payload = `{"to":["Ann <ann@ops.example.test>"],"cc":["bob@ops.example.test"],"subject":"Übung macht …","text":"line\n.\n.two\nfür","html":"<p>für</p>","headers":{"Reply-To":"ops@ops.example.test"}}`

func operation(key, body string) sdk.Operation {
	sum := sha256.Sum256([]byte(body))
	return sdk.Operation{ID: key, Attempt: 1, Action: "send", Key: key, Marker: key, Payload: []byte(body), PayloadSHA256: sum[:], AttemptID: key + "-1"}
}

func config(smtp string, edit func(map[string]any)) []byte {
	with := map[string]any{
		"domain": "ops.example.test", "from": "Ops <ops@ops.example.test>",
		"smtp": map[string]any{"addr": smtp, "security": "none"}, "operations": map[string]any{"send": map[string]any{}},
	}
	if edit != nil {
		edit(with)
	}
	raw, err := json.Marshal(with)
	if err != nil {
		panic(err)
	}
	return raw
}

const secret = "s3cret pa:ss"

func adapter(t *testing.T, raw, ca []byte) sdk.Adapter {
	t.Helper()
	a := mail.New()
	c, err := a.Configure(context.Background(), sdk.Configuration{Destination: "post", Config: raw, Secrets: map[string]string{"mail": secret}, ExtraCAPEM: ca})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range c.Diagnostics {
		if !d.Warning {
			t.Fatalf("%+v", d)
		}
	}
	return a
}

func dispatch(t *testing.T, a sdk.Adapter, o sdk.Operation) sdk.Response {
	t.Helper()
	return dispatchWithin(t, a, o, 20*time.Second)
}

func dispatchWithin(t *testing.T, a sdk.Adapter, o sdk.Operation, limit time.Duration) sdk.Response {
	t.Helper()
	r, err := a.Dispatch(context.Background(), sdk.DispatchRequest{Operation: o, Deadline: time.Now().Add(limit)})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprintf("%v %+v", r.Evidence, r.Outcome), secret) {
		t.Fatalf("the credential is in the evidence: %v", r.Evidence)
	}
	return r
}

func outcome[T sdk.Outcome](t *testing.T, r sdk.Response) T {
	t.Helper()
	o, ok := r.Outcome.(T)
	if !ok {
		t.Fatalf("outcome %T %+v, evidence %+v", r.Outcome, r.Outcome, r.Evidence)
	}
	return o
}
