package sdk

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter caps what a destination may ask for in Retry-After.
const MaxRetryAfter = 7 * 24 * time.Hour

// StatusOutcome is the standard table for the answer to a write that is not the
// success its author expects:
//
//	400 404 422   rejected: the same request would fail again
//	401           rejected: authentication, and nothing else will get through either
//	403           rejected: permission
//	409 412       rejected as conflict or precondition, which the daemon takes
//	              as "unknown, read now": the holder may be our own earlier send
//	429           not executed, refused for now, after Retry-After
//	anything else unknown, 503 and 2xx included
func StatusOutcome(status int, header http.Header, now time.Time) Outcome {
	code := strconv.Itoa(status)
	message := strings.TrimSpace(code + " " + http.StatusText(status))
	switch status {
	case http.StatusTooManyRequests:
		return &NotExecuted{Basis: BasisRefused, RetryAfter: RetryAfter(header, now), Message: message}
	case 400, 401, 403, 404, 409, 412, 422:
		return &Rejected{Reason: StatusReason(status), Code: code, Message: message, WholeDestination: status == 401}
	}
	if status >= 500 {
		return &Unknown{Cause: CauseServerError, Message: message}
	}
	return &Unknown{Cause: CauseBadResponse, Message: fmt.Sprintf("an answer that no rule names: %s", message)}
}

// StatusReason is the reason that a refusing status usually stands for.
func StatusReason(status int) RejectReason {
	switch status {
	case 401, 407:
		return ReasonAuthentication
	case 403:
		return ReasonPermission
	case 404, 410:
		return ReasonNotFound
	case 409:
		return ReasonConflict
	case 412, 428:
		return ReasonPrecondition
	case 402, 429:
		return ReasonQuota
	case 451:
		return ReasonPolicy
	case 405, 415, 501:
		return ReasonUnsupported
	}
	return ReasonValidation
}

// RetryAfter reads the Retry-After header, in seconds or as an HTTP date. It is
// 0 when absent, past or unreadable, and at most [MaxRetryAfter].
func RetryAfter(header http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(header.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		if seconds > int64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter
		}
		return max(0, time.Duration(seconds)*time.Second)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(MaxRetryAfter, max(0, at.Sub(now)))
}
