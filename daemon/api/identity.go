package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"

	"github.com/settled-dev/settled/journal"
)

var errUnidentified = errors.New("the sender of this request is not known")

type peerKey struct{}

// peer is the process at the other end of a Unix socket, by the kernel's word
// at the moment it connected.
type peer struct {
	uid uint32
	pid int32
}

// ConnContext asks the kernel who connected. It belongs into http.Server.ConnContext;
// [NewServer] puts it there.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	p, err := peerOf(u)
	if err != nil {
		return ctx // the request is then refused as unidentified
	}
	return context.WithValue(ctx, peerKey{}, p)
}

func peerOf(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *syscall.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, inner = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, inner); err != nil {
		return peer{}, fmt.Errorf("peer credentials: %w", err)
	}
	return peer{uid: cred.Uid, pid: cred.Pid}, nil
}

// ByPeer identifies a request by the user at the other end of the socket: "uid:1000", a person.
func ByPeer(r *http.Request) (journal.By, error) {
	p, ok := r.Context().Value(peerKey{}).(peer)
	if !ok {
		return journal.By{}, errUnidentified
	}
	return journal.By{Actor: "uid:" + strconv.FormatUint(uint64(p.uid), 10), Kind: journal.Human, Origin: "api"}, nil
}

type byKey struct{}

// by is who acts in this request; identified has put it there.
func by(r *http.Request, because string) journal.By {
	b, _ := r.Context().Value(byKey{}).(journal.By)
	b.Because = because
	return b
}

// identified lets a request through once its sender is known.
func (a *api) identified(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, err := a.opts.Identify(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		next(w, r.WithContext(context.WithValue(r.Context(), byKey{}, b)))
	}
}
