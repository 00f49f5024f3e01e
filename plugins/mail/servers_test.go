package mail_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// post is a real Postfix that delivers into a real Dovecot, both under one directory.
type post struct {
	dir              string
	smtp, imap       string // host:port
	smtpTLS, imapTLS string
	ca               []byte // PEM
}

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	ports := make([]string, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports[i] = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// certificate is self-signed for 127.0.0.1.
func certificate(t *testing.T, dir string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "post"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, filepath.Join(dir, "cert.pem"), string(ca), 0o644)
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), 0o600)
	return ca
}

func startPost(t *testing.T) *post {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Postfix and Dovecot")
	}
	if os.Getuid() != 0 {
		t.Skip("Postfix and Dovecot start only as root")
	}
	for _, path := range []string{"/usr/sbin/postfix", "/usr/sbin/dovecot", "/usr/lib/dovecot/imap"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("%s is not installed", path)
		}
	}
	dir, err := os.MkdirTemp("", "settled-mail-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 5)
	at := func(i int) string { return "127.0.0.1:" + ports[i] }
	p := &post{dir: dir, smtp: at(0), smtpTLS: at(1), imap: at(2), imapTLS: at(3), ca: certificate(t, dir)}
	uid, gid := p.mailOwner(t)
	p.startDovecot(t, uid, gid, ports)
	p.startPostfix(t, uid, gid, ports)
	return p
}

// mailOwner owns the mailboxes.
func (p *post) mailOwner(t *testing.T) (uid, gid int) {
	t.Helper()
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skipf("there is no user nobody: %v", err)
	}
	uid, _ = strconv.Atoi(nobody.Uid)
	gid, _ = strconv.Atoi(nobody.Gid)
	mail := filepath.Join(p.dir, "mail")
	if err := os.Mkdir(mail, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(mail, uid, gid); err != nil {
		t.Fatal(err)
	}
	return uid, gid
}

func (p *post) startDovecot(t *testing.T, uid, gid int, ports []string) {
	conf := filepath.Join(p.dir, "dovecot.conf")
	write(t, conf, fmt.Sprintf(`
base_dir = %[1]s/dovecot
state_dir = %[1]s/dovecot-state
log_path = %[1]s/dovecot.log
protocols = imap
listen = 127.0.0.1
ssl = yes
ssl_cert = <%[1]s/cert.pem
ssl_key = <%[1]s/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain login
passdb {
  driver = passwd-file
  args = scheme=PLAIN %[1]s/users
}
userdb {
  driver = static
  args = uid=%[2]d gid=%[3]d home=%[1]s/mail/%%n
}
mail_location = maildir:%[1]s/mail/%%n
first_valid_uid = %[2]d
first_valid_gid = %[3]d
service imap-login {
  chroot =
  inet_listener imap {
    port = %[4]s
  }
  inet_listener imaps {
    port = %[5]s
    ssl = yes
  }
}
service auth {
  inet_listener {
    address = 127.0.0.1
    port = %[6]s
  }
}
auth_failure_delay = 0
service anvil {
  chroot =
  unix_listener anvil-auth-penalty {
    mode = 0
  }
}
`, p.dir, uid, gid, ports[2], ports[3], ports[4]), 0o644)
	write(t, filepath.Join(p.dir, "users"), "archive:{PLAIN.b64}"+base64.StdEncoding.EncodeToString([]byte(secret))+"::::::\n", 0o644)
	cmd := exec.Command("/usr/sbin/dovecot", "-F", "-c", conf)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(cmd.Process.Pid, syscall.SIGTERM); _ = cmd.Wait() })
	answers(t, p.imap, func() string {
		log, _ := os.ReadFile(filepath.Join(p.dir, "dovecot.log"))
		return out.String() + string(log)
	})
}

func (p *post) startPostfix(t *testing.T, uid, gid int, ports []string) {
	etc := filepath.Join(p.dir, "postfix")
	for _, dir := range []string{etc, p.dir + "/queue", p.dir + "/data"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	owner, err := user.Lookup("postfix")
	if err != nil {
		t.Skipf("there is no user postfix: %v", err)
	}
	owned, _ := strconv.Atoi(owner.Uid)
	if err := os.Chown(p.dir+"/data", owned, 0); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(etc, "main.cf"), fmt.Sprintf(`
compatibility_level = 3.6
queue_directory = %[1]s/queue
data_directory = %[1]s/data
maillog_file = %[1]s/postfix.log
maillog_file_prefixes = %[1]s
myhostname = ops.example.test
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks =
alias_maps =
alias_database =
local_recipient_maps =
virtual_mailbox_domains = ops.example.test
virtual_mailbox_maps = static:archive/
virtual_mailbox_base = %[1]s/mail
virtual_uid_maps = static:%[2]d
virtual_gid_maps = static:%[3]d
virtual_minimum_uid = 1
message_size_limit = 20000
smtpd_tls_cert_file = %[1]s/cert.pem
smtpd_tls_key_file = %[1]s/key.pem
smtpd_tls_security_level = may
smtpd_sasl_auth_enable = yes
smtpd_sasl_type = dovecot
smtpd_sasl_path = inet:127.0.0.1:%[4]s
smtpd_recipient_restrictions = check_recipient_access inline:{{no@ops.example.test=550 5.7.1 refused}, {busy@ops.example.test=450 4.2.1 busy}}, permit_sasl_authenticated, reject
`, p.dir, uid, gid, ports[4]), 0o644)
	write(t, filepath.Join(etc, "master.cf"), fmt.Sprintf(`
127.0.0.1:%s inet n - n - - smtpd
127.0.0.1:%s inet n - n - - smtpd
  -o smtpd_tls_wrappermode=yes
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
local unix - n n - - local
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
`, ports[0], ports[1]), 0o644)
	p.postfix(t, "start")
	t.Cleanup(func() { p.postfix(t, "abort") })
	answers(t, p.smtp, func() string { log, _ := os.ReadFile(filepath.Join(p.dir, "postfix.log")); return string(log) })
}

// postfix runs the administrator's command on this instance only.
func (p *post) postfix(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("/usr/sbin/postfix", append([]string{"-c", filepath.Join(p.dir, "postfix")}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	if out, err := cmd.CombinedOutput(); err != nil {
		log, _ := os.ReadFile(filepath.Join(p.dir, "postfix.log"))
		t.Errorf("postfix %s: %v\n%s\n%s", args, err, out, log)
	}
}

// setting changes main.cf and makes Postfix read it.
func (p *post) setting(t *testing.T, value string) {
	t.Helper()
	etc := filepath.Join(p.dir, "postfix")
	if out, err := exec.Command("/usr/sbin/postconf", "-c", etc, "-e", value).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p.postfix(t, "reload")
}

// answers waits for a greeting.
func answers(t *testing.T, addr string, log func() string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			// A greeting, and not only an open port.
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			n, rerr := c.Read(make([]byte, 64))
			_ = c.Close()
			if n > 0 {
				return
			}
			err = rerr
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer: %v\n%s", addr, err, log())
		}
	}
}
