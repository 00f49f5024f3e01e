// Package spec holds the formal model of one effect, in Promela, and the test
// that runs it.
//
// What is guaranteed is that a model checker has walked through every order of
// events that effect.pml allows: a daemon killed between any two steps, a wire
// that loses and delivers late, a view that lags, an adapter that outlives its
// daemon, a backup that is put back. In none of them does the destination hold
// two objects, is a call without its row, or does doubt last for ever. For every
// guard there is a twin of the model without it, and the checker must find what
// goes wrong.
//
// The model and the code are kept in step by their moves: each MOVE in the model
// is a transition of package journal, with its number. The package has no code
// of its own and leaves nothing behind.
package spec
