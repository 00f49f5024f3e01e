// Package samples holds the tests of the sample files in cmd/settled/testdata:
// that what is said to be good is accepted and what is said to be wrong is not.
// It has no code of its own.
package samples
