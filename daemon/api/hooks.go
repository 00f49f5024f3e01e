package api

import (
	"net/http"
	"strings"

	"github.com/settled-dev/settled/daemon/webhook"
)

// HookAnswer says that a message is on disk, and nothing about the effect.
type HookAnswer struct {
	Recorded bool `json:"recorded"` // false: it is about nothing of ours
	Seen     bool `json:"seen"`     // it was taken up before
}

// hook takes a message of a destination. Its signature is what identifies the
// sender: nothing of the body is parsed before it was checked.
func (a *api) hook(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r, webhook.MaxBody)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	headers := make(map[string]string, len(r.Header))
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = values[0]
	}
	out, err := a.svc.Hook(r.Context(), r.PathValue("destination"), headers, body)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, HookAnswer{Recorded: out.Key != "", Seen: out.Seen})
}
