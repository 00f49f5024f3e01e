package daemon

import (
	"context"
	"sync"

	"github.com/settled-dev/settled/journal"
)

// followers tells those who wait for one effect of each of its changes. It is
// fed after COMMIT, so what it tells is on disk.
type followers struct {
	mu sync.Mutex
	// protects following
	byKey map[string][]chan journal.Effect
}

func newFollowers() *followers { return &followers{byKey: map[string][]chan journal.Effect{}} }

// tell hands the newest state to everybody who follows the key. A follower that
// is slow misses older states, never the newest.
func (f *followers) tell(e journal.Effect) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.byKey[e.Key] {
		select {
		case <-c:
		default:
		}
		c <- e // cap 1 and just emptied, under the lock: never blocks
	}
}

func (f *followers) add(key string) chan journal.Effect {
	c := make(chan journal.Effect, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byKey[key] = append(f.byKey[key], c)
	return c
}

func (f *followers) remove(key string, c chan journal.Effect) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.byKey[key]
	for i := range list {
		if list[i] == c {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(f.byKey, key)
		return
	}
	f.byKey[key] = list
}

// Follow returns a channel with the newest state of an effect after each of
// its changes. Call stop when done. Follow before submitting and no change is missed.
func (d *Daemon) Follow(key string) (changes <-chan journal.Effect, stop func()) {
	c := d.followers.add(key)
	return c, func() { d.followers.remove(key, c) }
}

// WaitChange returns when the effect's Seq is above after, or with ctx's error.
func (d *Daemon) WaitChange(ctx context.Context, key string, after int64) (journal.Effect, error) {
	changes, stop := d.Follow(key)
	defer stop()
	e, err := d.db.Effect(ctx, key)
	if err != nil {
		return e, notFound(key, err)
	}
	for e.Seq <= after {
		select {
		case <-ctx.Done():
			return e, ctx.Err()
		case <-d.runCtx.Done():
			return e, ErrDraining
		case e = <-changes:
		}
	}
	return e, nil
}
