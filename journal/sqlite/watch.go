package sqlite

import "sync"

// Watch tells that something was committed. It is bounded and lossy: C holds at
// most one number, the newest line of the chain; who is slow misses only older numbers.
type Watch struct {
	C  <-chan int64
	c  chan int64
	of *watches
}

// watches is the list of listeners. Under mu; told by the committer.
type watches struct {
	mu   sync.Mutex
	list map[*Watch]struct{}
	over bool
}

// Watch subscribes to commits. C is closed by [Watch.Close] and by [DB.Close].
func (db *DB) Watch() *Watch {
	c := make(chan int64, 1)
	w := &Watch{C: c, c: c, of: &db.watches}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.of.over {
		close(c)
		return w
	}
	if w.of.list == nil {
		w.of.list = map[*Watch]struct{}{}
	}
	w.of.list[w] = struct{}{}
	return w
}

// Close ends the subscription.
func (w *Watch) Close() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if _, ok := w.of.list[w]; ok {
		delete(w.of.list, w)
		close(w.c)
	}
}

func (ws *watches) tell(seq int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.list {
		select {
		case <-w.c: // an older number
		default:
		}
		w.c <- seq // only the committer sends, so there is room
	}
}

func (ws *watches) closeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.list {
		close(w.c)
	}
	ws.list, ws.over = nil, true
}
