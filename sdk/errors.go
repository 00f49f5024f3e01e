package sdk

import "errors"

// ErrNotSent proves that no byte of the request left this machine. An error
// from Dispatch that wraps it means not executed; every other error means unknown.
var ErrNotSent = errors.New("no byte of the request was sent")

// NotSent wraps err as proof that nothing was sent. Only whoever watched the
// wire may call it.
func NotSent(err error) error { return errors.Join(ErrNotSent, err) }
