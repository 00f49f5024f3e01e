package mail

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	netmail "net/mail"
	"net/textproto"
	"strings"
	"time"

	"github.com/emersion/go-imap"
	"github.com/emersion/go-imap/client"

	"github.com/settled-dev/settled/sdk"
)

// maxHits bounds what one mailbox may answer; more is an answer that is not complete.
const maxHits = 50

// Read searches the named mailboxes for the Message-ID.
func (a *Adapter) Read(ctx context.Context, r sdk.ReadRequest) (sdk.ReadResponse, error) {
	s := a.configured()
	if s == nil {
		return sdk.ReadResponse{Finding: &sdk.Indeterminate{Message: notConfigured}}, nil
	}
	if _, err := s.action(r.Operation.Action); err != nil {
		return sdk.ReadResponse{Finding: &sdk.Indeterminate{Message: err.Error()}}, nil
	}
	if s.cfg.imap == nil {
		return sdk.ReadResponse{Finding: &sdk.Indeterminate{Message: "no imap is configured: a person looks whether the mail arrived"}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	begun, id := time.Now().UTC(), messageID(r.Operation, s.cfg.domain)
	matches, complete, err := s.search(ctx, id, digestOf(r.Operation))
	evidence := sdk.Evidence{At: begun, Kind: "imap.read", Summary: "UID SEARCH HEADER Message-ID " + id, Fields: map[string]string{"mailboxes": s.cfg.view(), "hits": fmt.Sprint(len(matches))}}
	if err != nil {
		message := s.text("the read failed: "+err.Error(), 1024)
		return sdk.ReadResponse{Finding: &sdk.Indeterminate{Message: message}, Evidence: []sdk.Evidence{evidence}}, nil
	}
	response := sdk.ReadResponse{Authority: s.cfg.terms.Authority(), Coverage: sdk.CoverageComplete, AsOf: begun, Evidence: []sdk.Evidence{evidence}}
	if !complete {
		response.Coverage = sdk.CoverageTruncated
	}
	sum := sha256.Sum256([]byte(s.cfg.view() + "\x00" + id))
	response.View = &sdk.View{
		ID: s.cfg.view(), FilterSHA256: sum[:], Principal: s.principal, ScannedFrom: time.Unix(1, 0).UTC(), ScannedTo: begun,
		VisibilityProven: true, How: "each named mailbox was opened with the same login",
	}
	if len(matches) > 0 {
		response.Finding = &sdk.Found{Matches: matches}
	} else {
		response.Finding = &sdk.NoneSeen{ScopesSearched: s.cfg.mailboxes}
	}
	return response, nil
}

// search opens every mailbox; one that cannot be opened fails the whole read.
func (s *state) search(ctx context.Context, id, digest string) (matches []sdk.Match, complete bool, err error) {
	complete = true
	err = s.session(ctx, func(c *client.Client) error {
		for _, mailbox := range s.cfg.mailboxes {
			found, whole, err := s.searchIn(c, mailbox, id, digest)
			if err != nil {
				return fmt.Errorf("mailbox %s: %w", mailbox, err)
			}
			matches, complete = append(matches, found...), complete && whole
		}
		return nil
	})
	return matches, complete, err
}

func (s *state) checkIMAP(ctx context.Context) error {
	return s.session(ctx, func(c *client.Client) error {
		for _, mailbox := range s.cfg.mailboxes {
			if _, err := c.Select(mailbox, true); err != nil {
				return fmt.Errorf("mailbox %s: %w", mailbox, err)
			}
		}
		return nil
	})
}

// session logs in, calls f and logs out. The context's end closes the connection.
func (s *state) session(ctx context.Context, f func(*client.Client) error) error {
	conn, err := dial(ctx, *s.cfg.imap, s.tls)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c, err := client.New(conn)
	if err != nil {
		return errors.Join(fmt.Errorf("greeting: %w", err), conn.Close())
	}
	c.ErrorLog = log.New(io.Discard, "", 0) // every error is returned as well
	defer func() {
		_ = c.Terminate() // whatever it says, the connection is gone
		<-c.LoggedOut()
	}()
	if s.cfg.imap.security == securityStartTLS {
		cfg := s.tls.Clone()
		cfg.ServerName = s.cfg.imap.host
		if err := c.StartTLS(cfg); err != nil {
			return fmt.Errorf("STARTTLS: %w", err)
		}
	}
	if err := c.Login(s.cfg.imap.user, s.cfg.imap.password); err != nil {
		return fmt.Errorf("login: %w", err)
	}
	if err := f(c); err != nil {
		return err
	}
	_ = c.Logout() // the answers are here
	return nil
}

func (s *state) searchIn(c *client.Client, mailbox, id, digest string) (matches []sdk.Match, complete bool, err error) {
	if _, err := c.Select(mailbox, true); err != nil {
		return nil, false, err
	}
	criteria := imap.NewSearchCriteria()
	criteria.Header = textproto.MIMEHeader{"Message-Id": {id}}
	uids, err := c.UidSearch(criteria)
	if err != nil || len(uids) == 0 {
		return nil, true, err
	}
	complete = len(uids) <= maxHits
	if !complete {
		uids = uids[:maxHits]
	}
	set := new(imap.SeqSet)
	set.AddNum(uids...)
	section := &imap.BodySectionName{Peek: true, BodyPartName: imap.BodyPartName{Specifier: imap.HeaderSpecifier, Fields: []string{"Message-ID", digestHeader, "Date"}}}
	hits := make(chan *imap.Message, len(uids))
	if err := c.UidFetch(set, []imap.FetchItem{imap.FetchUid, imap.FetchInternalDate, section.FetchItem()}, hits); err != nil {
		return nil, false, err
	}
	fetched := 0
	for hit := range hits {
		fetched++
		m, ours, err := matchOf(hit, section, mailbox, id, digest)
		if err != nil {
			return nil, false, err
		}
		if ours {
			matches = append(matches, m)
		}
	}
	return matches, complete && fetched == len(uids), nil
}

// matchOf compares one hit: the server's search finds parts of words, too.
func matchOf(hit *imap.Message, section *imap.BodySectionName, mailbox, id, digest string) (m sdk.Match, ours bool, err error) {
	body := hit.GetBody(section)
	if body == nil {
		return m, false, errors.New("a hit came without its header")
	}
	raw, err := io.ReadAll(io.LimitReader(body, sdk.MaxObserved))
	if err != nil {
		return m, false, err
	}
	parsed, err := netmail.ReadMessage(bytes.NewReader(append(bytes.TrimRight(raw, "\r\n"), "\r\n\r\n"...)))
	if err != nil {
		return m, false, fmt.Errorf("the header of a hit: %w", err)
	}
	if strings.TrimSpace(parsed.Header.Get("Message-Id")) != id {
		return m, false, nil
	}
	m = sdk.Match{
		Object:   sdk.ObjectRef{Type: "mail", ID: id, State: "in " + mailbox},
		Strength: sdk.StrengthMarker, Agreement: sdk.AgreementSame, CreatedAt: hit.InternalDate.UTC(),
	}
	if theirs := strings.TrimSpace(parsed.Header.Get(digestHeader)); theirs != digest {
		m.Agreement, m.Differences = sdk.AgreementDiffers, []string{"/digest"}
	}
	m.Observed, err = json.Marshal(map[string]any{"mailbox": mailbox, "uid": hit.Uid, "message_id": id, "digest": parsed.Header.Get(digestHeader), "arrived": hit.InternalDate})
	return m, true, err
}
