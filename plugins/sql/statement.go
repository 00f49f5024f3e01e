package sql

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// statement is SQL of the operator, cut at its named parameters.
type statement struct {
	source string
	text   []string // one more than names
	names  []string // of the parameters, in order; a name may occur again
}

// verbs are what a statement may begin with. Others could end the transaction
// that makes the row and the statement one, as every DDL does in MySQL.
func verbs(driver string, query bool) []string {
	if query {
		return []string{"SELECT", "WITH", "VALUES"}
	}
	list := []string{"INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "WITH", "SELECT"}
	if driver == driverPostgres {
		list = append(list, "CALL") // a procedure cannot commit inside a transaction block there
	}
	return list
}

// parseStatement finds the parameters `:name`. Literals, quoted names, comments
// and casts (`::`) are left alone. Exactly one statement is allowed.
func parseStatement(source, driver string, query bool) (*statement, error) {
	p := &parser{rest: source, driver: driver, st: &statement{source: source}}
	if err := p.parse(); err != nil {
		return nil, err
	}
	allowed := verbs(driver, query)
	if !slices.Contains(allowed, p.verb) {
		return nil, fmt.Errorf("begins with %q; it must begin with one of %s", p.verb, strings.Join(allowed, ", "))
	}
	return p.st, nil
}

// render is the SQL with the driver's placeholders.
func (s *statement) render(placeholder func(n int) string) string {
	var b strings.Builder
	for i, text := range s.text {
		if i > 0 {
			b.WriteString(placeholder(i))
		}
		b.WriteString(text)
	}
	return b.String()
}

type parser struct {
	rest, driver string
	done         strings.Builder // since the last parameter
	last         byte            // the byte before rest
	verb         string
	ended        bool // a semicolon was seen
	st           *statement
}

func (p *parser) take(n int) {
	if n == 0 {
		return
	}
	p.done.WriteString(p.rest[:n])
	p.last = p.rest[n-1]
	p.rest = p.rest[n:]
}

func (p *parser) parse() error {
	for p.rest != "" {
		if n, err := p.opaque(); err != nil {
			return err
		} else if n > 0 {
			p.take(n)
			continue
		}
		if err := p.code(); err != nil {
			return err
		}
	}
	p.st.text = append(p.st.text, p.done.String())
	return nil
}

// opaque measures what stands at the beginning and holds no parameter: a
// comment, a literal, a quoted name. 0 means that it is code.
func (p *parser) opaque() (int, error) {
	switch s := p.rest; {
	case strings.HasPrefix(s, "--"), s[0] == '#' && p.driver == driverMySQL:
		if at := strings.IndexByte(s, '\n'); at >= 0 {
			return at + 1, nil
		}
		return len(s), nil
	case strings.HasPrefix(s, "/*"):
		return p.comment()
	case s[0] == '\'':
		escapes := p.driver == driverMySQL || (p.driver == driverPostgres && (p.last == 'E' || p.last == 'e'))
		return quoted(s, '\'', escapes)
	case s[0] == '"':
		return quoted(s, '"', p.driver == driverMySQL)
	case s[0] == '`' && p.driver != driverPostgres:
		return quoted(s, '`', false)
	case s[0] == '$' && p.driver == driverPostgres && !isName(p.last):
		return dollarQuoted(s)
	}
	return 0, nil
}

func (p *parser) comment() (int, error) {
	depth := 0
	for i := 0; i+1 < len(p.rest); i++ {
		switch p.rest[i : i+2] {
		case "/*":
			if depth == 0 || p.driver == driverPostgres {
				depth++
			}
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1, nil
			}
		}
	}
	return 0, errors.New("a comment /* is not closed")
}

func quoted(s string, quote byte, escapes bool) (int, error) {
	for i := 1; i < len(s); i++ {
		switch {
		case escapes && s[i] == '\\':
			i++
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("a quote %c is not closed", quote)
}

// dollarQuoted measures $tag$ … $tag$; 0 when it is none.
func dollarQuoted(s string) (int, error) {
	end := 1
	for end < len(s) && isName(s[end]) {
		end++
	}
	if end >= len(s) || s[end] != '$' || (end > 1 && isDigit(s[1])) {
		return 0, nil
	}
	tag := s[:end+1]
	at := strings.Index(s[len(tag):], tag)
	if at < 0 {
		return 0, fmt.Errorf("a quote %s is not closed", tag)
	}
	return at + 2*len(tag), nil
}

// code takes one piece of SQL that is neither literal nor comment.
func (p *parser) code() error {
	s := p.rest
	if p.ended && !isSpace(s[0]) && s[0] != ';' {
		return errors.New("holds more than one statement")
	}
	switch {
	case strings.HasPrefix(s, "::"), strings.HasPrefix(s, ":="):
		p.take(2)
	case s[0] == ':' && len(s) > 1 && isName(s[1]) && !isDigit(s[1]) && !isName(p.last):
		end := 1
		for end < len(s) && isName(s[end]) {
			end++
		}
		p.st.text = append(p.st.text, p.done.String())
		p.st.names = append(p.st.names, s[1:end])
		p.done.Reset()
		p.last, p.rest = s[end-1], s[end:]
	case s[0] == '?' && p.driver != driverPostgres, s[0] == '$' && len(s) > 1 && isDigit(s[1]) && !isName(p.last):
		return errors.New("holds a placeholder without a name; write :name")
	case s[0] == ';':
		// The semicolon itself is dropped: drivers take one statement.
		p.ended, p.last, p.rest = true, ';', s[1:]
	case isName(s[0]):
		end := 1
		for end < len(s) && isName(s[end]) {
			end++
		}
		// The quote of E'…' needs the letter before it.
		if p.verb == "" {
			p.verb = strings.ToUpper(s[:end])
		}
		p.take(end)
	default:
		p.take(1)
	}
	return nil
}

func isName(c byte) bool {
	return c == '_' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isSpace(c byte) bool { return strings.IndexByte(" \t\r\n\f\v", c) >= 0 }
