// Package mail is the built-in adapter that sends mail by SMTP and looks by
// IMAP whether it arrived. A sent mail cannot be taken back: every operation is
// irreversible.
//
// # Guarantees
//
// A Dispatch uses one connection and offers one message, once. The message is
// handed over by the line "." that ends it, and by nothing before: whatever
// fails before that line is written is proof that nothing was sent. From then on
// only a whole reply line says more: 250 is done, 4xx and 5xx are refused, and a
// lost, late or truncated reply is unknown. A recipient that is refused aborts
// the message for all of them, before its content is sent, unless recipients =
// "send_to_rest" is configured.
//
// The Message-ID is made of the effect's key and the payload's digest, so that
// every attempt carries the same one and no other payload does. A server does
// not deduplicate by it: two messages may carry it, and a Read counts them.
//
// A Read opens the named mailboxes read-only, lets the server search for the
// Message-ID and compares every hit byte for byte, since servers find parts of
// words too. The digest in the header X-Settled-Digest is compared as well.
// A mail may wait in queues for days: the view is eventual, and it proves an
// absence only if the operator declares a lag. Name mailboxes of which a mail
// reaches exactly one, such as an archive that gets a copy of everything: a mail
// seen in two is reported as a duplicate. Without imap there is no read and a
// person decides.
//
// # What a crash leaves behind
//
// Nothing is kept between calls. A server drops a message whose connection ends
// before the last line; after it the message is the server's.
package mail
