package cephx

import (
	"bytes"
	"crypto/aes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

const sampleKeyring = `# made by hand
[global]
	debug = 1
[mon.] ; as Ceph's own tools take it
	key = 'AQBAGgFrkJ2DJBAAABEiM0RVZneImaq7zN3u/w=='
	caps_mon = "allow *"

[client.admin]
key=AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA== ; the usual one
    auid = 18446744073709551615
    caps  mds = "allow \"all\" \\ of it"   # quoted
    caps osd = allow \
*
`

func TestKeyringFile(t *testing.T) {
	k, err := ReadKeyring(strings.NewReader(sampleKeyring))
	must(t, err)
	mon, ok := k.Lookup(monKey)
	if !ok || mon.Caps["mon"] != "allow *" {
		t.Errorf("mon. is %+v", mon)
	}
	a, ok := k.Lookup(admin)
	if !ok || a.Caps["mds"] != `allow "all" \ of it` || a.Caps["osd"] != "allow *" || len(a.Caps) != 2 {
		t.Errorf("client.admin is %+v", a)
	}
	if a.Key.base64() != vectorEntityKey {
		t.Error("key differs")
	}
	if _, ok := k.Lookup(osd0); ok {
		t.Error("osd.0 exists")
	}
	var out, again bytes.Buffer
	_, err = k.WriteTo(&out)
	must(t, err)
	k2, err := ReadKeyring(bytes.NewReader(out.Bytes()))
	must(t, err)
	_, err = k2.WriteTo(&again)
	must(t, err)
	if b, _ := k2.Lookup(admin); !maps.Equal(a.Caps, b.Caps) || !b.Key.equal(a.Key) {
		t.Errorf("client.admin is %+v when it is read again", b)
	}
	if out.String() != again.String() || len(k2.entities) != 2 || !strings.HasPrefix(out.String(), "[mon.]\n") {
		t.Errorf("written as\n%s\nthen as\n%s", out.String(), again.String())
	}
	k.Wipe()
	if !a.Key.IsZero() || len(k.entities) != 0 {
		t.Error("not wiped")
	}
}

func TestKeyringErrorsNameTheLine(t *testing.T) {
	const key = "key = " + vectorEntityKey + "\n"
	for text, line := range map[string]int{
		key:                                         1,
		"\n[client.a\n" + key:                       2,
		"[client]\n" + key:                          1,
		"[nonsense.a]\n" + key:                      1,
		"[client.a]\n\n[client.b]\n" + key:          3,
		"[client.b]\n" + key + "[client.a]\n\n":     3,
		"[client.a]\n" + key + "[client.a]\n" + key: 3,
		"[client.a]\n" + key + key:                  3,
		"[client.a]\nkey = AQBA\n":                  2,
		"[client.a]\nkey = !!!!\n":                  2,
		"[client.a]\n" + key + "\nwhat\n":           4,
		"[client.a]\n" + key + "caps osd = \"x\n":   3,
		"[client.a]\n" + key + "caps osd = \"x\\":   3,
		"[client.a]\n" + key + "caps a = \"x\" y\n": 3,
		"[client.a]\n" + key + "caps a=x\ncaps a=y": 4,
	} {
		_, err := ReadKeyring(strings.NewReader(text))
		if !errors.Is(err, errKeyring) || !strings.HasPrefix(err.Error(), fmt.Sprintf("keyring: line %d: ", line)) {
			t.Errorf("%q: want line %d: %v", text, line, err)
		}
		if strings.Contains(fmt.Sprint(err), "LXeqe7") {
			t.Errorf("%q: the error quotes the key: %v", text, err)
		}
	}
	if _, err := ReadKeyring(strings.NewReader(strings.Repeat("x", maxKeyringLine+1))); err == nil {
		t.Error("endless line accepted")
	}
}

func TestKeyringSetRefusesWhatCannotBeWritten(t *testing.T) {
	k := newKey(t, AES)
	ring := new(Keyring)
	for _, e := range []Entity{
		{Name: admin},
		{Key: k},
		{Name: wire.EntityName{Type: wire.Client, ID: "a]\n[client.b"}, Key: k},
		{Name: wire.EntityName{Type: wire.Client, ID: "a "}, Key: k},
		{Name: wire.EntityName{Type: 0x40, ID: "a"}, Key: k},
		{Name: admin, Key: k, Caps: map[string]string{"osd mon": "x"}},
		{Name: admin, Key: k, Caps: map[string]string{"": "x"}},
		{Name: admin, Key: k, Caps: map[string]string{"a=b": "x"}},
		{Name: admin, Key: k, Caps: map[string]string{"osd": "x\n[client.b]"}},
	} {
		if err := ring.Set(e); err == nil {
			t.Errorf("%+v accepted", e)
		}
	}
	caps := map[string]string{"osd": "x"}
	must(t, ring.Set(Entity{Name: admin, Key: k, Caps: caps}))
	caps["osd"] = "y"
	k.Wipe()
	if e, _ := ring.Lookup(admin); e.Key.IsZero() || e.Caps["osd"] != "x" {
		t.Error("the keyring shares what it was given")
	}
}

// Matrix: AU-23
func TestUnknownKindsAndWrongSizesOfKeysAreRefused(t *testing.T) {
	good, err := base64.StdEncoding.DecodeString(vectorEntityKey)
	must(t, err)
	change := func(f func(p []byte) []byte) string {
		return base64.StdEncoding.EncodeToString(f(append([]byte(nil), good...)))
	}
	for name, tc := range map[string]struct {
		text string
		want error
	}{
		"type 0":      {change(func(p []byte) []byte { p[0] = 0; return p }), errKeyType},
		"type 2":      {change(func(p []byte) []byte { p[0] = 2; return p }), errKeyType},
		"type 3":      {change(func(p []byte) []byte { p[0] = 3; return p }), errKeyType},
		"type 0x0101": {change(func(p []byte) []byte { p[1] = 1; return p }), errKeyType},
		"15 bytes":    {change(func(p []byte) []byte { p[10] = 15; return p[:27] }), errKeyType},
		"32 bytes":    {change(func(p []byte) []byte { p[10] = 32; return append(p, p[12:]...) }), errKeyType},
		"no bytes":    {change(func(p []byte) []byte { p[10] = 0; return p[:12] }), errKeyType},
		"truncated":   {change(func(p []byte) []byte { return p[:27] }), wire.ErrMalformed},
		"surplus":     {change(func(p []byte) []byte { return append(p, 0) }), wire.ErrMalformed},
		"empty":       {"", wire.ErrMalformed},
		"not base64":  {"####", wire.ErrMalformed},
	} {
		if k, err := ParseKey(tc.text); !errors.Is(err, tc.want) || !k.IsZero() {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewSigner(make([]byte, 24), true); !errors.Is(err, errKeyType) {
		t.Error(err)
	}
}

// The type of a key is looked at wherever one comes from a peer. One of another type, or of
// another size than its type has, ends the exchange with an error that names it, and is
// never used.
// Matrix: AU-23
func TestPeersCannotBringOtherKeyTypes(t *testing.T) {
	c := newCluster(t)
	cl := c.client(admin)
	good, _ := c.ring.Lookup(admin)
	ofType := func(typ byte, n int) []byte {
		p := good.Key.appendTo(nil)[:keyHeadSize]
		p[0], p[10] = typ, byte(n)
		return append(p, make([]byte, n)...)
	}
	for _, k := range [][]byte{ofType(0, 0), ofType(0, 16), ofType(2, 16), ofType(2, 31), ofType(3, 32), ofType(3, 16), ofType(1, 32), ofType(1, 0)} {
		grantOf, err := good.Key.seal(useGrant, nil, le.AppendUint64(append([]byte{structVersion}, k...), 3600), nil)
		must(t, err)
		content := ticketContent{name: admin, globalID: 1}
		plain := content.appendTo(nil)
		plain = append(plain[:len(plain)-(keyHeadSize)], k...)
		blob, err := good.Key.seal(useTicket, nil, plain, nil)
		must(t, err)
		entry := issued{service: serviceAuth, grant: grantOf, sealed: ticket{1, blob}.appendTo(nil)}
		login := entry.appendTo(appendIssuedHead(appendReplyHeader(nil, opAuthSessionKey), 1))
		secrets := wire.AppendUtime(append(append(le.AppendUint64(le.AppendUint32([]byte{structVersion}, 1), 7), structVersion), k...), t0)
		sealed, err := good.Key.sealPrefixed(useRotating, appendReplyHeader(nil, opRotatingKey), append(le.AppendUint64(secrets, 7), make([]byte, 16)...), nil)
		must(t, err)

		_, _, errLogin := cl.openLoginReply(login, serviceAuth, Key{})
		_, errTicket := openTicket(ticket{1, blob}, good.Key)
		_, errSecrets := cl.openSecrets(sealed)
		for what, err := range map[string]error{"session key": errLogin, "ticket": errTicket, "service secret": errSecrets} {
			wantErr(t, fmt.Sprintf("%s of type %d with %d bytes", what, k[0], k[10]), err, errKeyType)
		}
	}
}

func TestKeyHandles(t *testing.T) {
	k := newKey(t, AES)
	share, clone, secret := k, k.Clone(), k.data().secret
	if !k.equal(clone) || k.equal(Key{}) || (Key{}).equal(Key{}) {
		t.Error("equality")
	}
	if !k.created().Equal(t0) {
		t.Errorf("created %v", k.created())
	}
	k.Wipe()
	if !share.IsZero() || clone.IsZero() || share.Secret() != nil {
		t.Error("a wipe is for all copies and for no clone")
	}
	if !overwritten(secret) {
		t.Error("secret is not overwritten")
	}
	for _, k := range []Key{{}, share} {
		if _, err := k.seal(useTicket, nil, nil, nil); !errors.Is(err, errNoKey) {
			t.Error(err)
		}
		if _, err := k.open(useTicket, make([]byte, 16)); !errors.Is(err, errNoKey) {
			t.Error(err)
		}
		if _, err := decodeKey(k.appendTo(nil), readKey); !errors.Is(err, errKeyType) {
			t.Error(err)
		}
	}
	if _, err := NewKey(AES, script(), t0); err == nil {
		t.Error("a key without random numbers")
	}
}

// The tags of kind AES256K make what is altered, cut or meant for something else an error of its
// own. With kind AES the first block alone is sure to be found, and sizes that no cipher text has.
func TestEnvelopesRefuseForeignAndAlteredData(t *testing.T) {
	for _, kind := range []Kind{AES, AES256K} {
		k, other, tagged := newKey(t, kind), newKey(t, kind), kind == AES256K
		for n := range 40 {
			payload := bytes.Repeat([]byte{7}, n)
			bare, err := k.seal(useReply, nil, payload, nil)
			must(t, err)
			again, err := k.seal(useReply, nil, payload, nil)
			must(t, err)
			want, odd := (envelopeHead+n)/16*16+16, wire.ErrMalformed
			if tagged {
				want, odd = n+49, errWrongKey
			}
			if len(bare) != want || bytes.Equal(bare, again) == tagged {
				t.Errorf("%v: %d bytes of payload: envelope of %d, the same twice: %v", kind, n, len(bare), bytes.Equal(bare, again))
			}
			p, err := k.open(useReply, bare)
			must(t, err)
			same(t, "payload", p, payload)
			refused := func(what string, k Key, u usage, bare []byte, want error) {
				wantErr(t, fmt.Sprintf("%v: %d bytes of payload, %s", kind, n, what), second(k.open(u, bare)), want)
			}
			refused("other key", other, useReply, bare, errWrongKey)
			refused("surplus", k, useReply, append(bare, 0), odd)
			if tagged {
				refused("other usage", k, useChallenge, bare, errWrongKey)
			}
			for i := range bare {
				bad := bytes.Clone(bare)
				bad[i] ^= 1
				if tagged || i < blockSize {
					refused(fmt.Sprintf("altered at %d", i), k, useReply, bad, errWrongKey)
				}
				if cut := fmt.Sprintf("cut at %d", i); i < blockSize+tagSize && tagged || i == 0 {
					refused(cut, k, useReply, bare[:i], wire.ErrMalformed)
				} else if tagged || i%blockSize != 0 {
					refused(cut, k, useReply, bare[:i], odd)
				}
			}
		}
		if _, err := k.seal(useReply, nil, nil, script()); (err == nil) == tagged {
			t.Errorf("%v: sealed without random numbers: %v", kind, err)
		}
		if _, err := NewSigner(k.Secret(), false); errors.Is(err, errKeyType) != tagged {
			t.Errorf("%v: signer of the first form: %v", kind, err)
		}
	}
}

func TestPaddingIsChecked(t *testing.T) {
	k := newKey(t, AES)
	block, err := aes.NewCipher(k.data().secret)
	must(t, err)
	for name, tc := range map[string]struct {
		last [16]byte
		want int // length of the plain text, -1 is an error
	}{
		"one":         {[16]byte{15: 1}, 15},
		"three":       {[16]byte{13: 3, 14: 3, 15: 3}, 13},
		"sixteen":     {[16]byte{16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16}, 0},
		"zero":        {[16]byte{}, -1},
		"seventeen":   {[16]byte{15: 17}, -1},
		"all 17":      {[16]byte(bytes.Repeat([]byte{17}, 16)), -1},
		"255":         {[16]byte{15: 255}, -1},
		"broken":      {[16]byte{13: 2, 14: 3, 15: 3}, -1},
		"broken at 0": {[16]byte{15, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16}, -1},
	} {
		var c [16]byte
		for i := range c {
			c[i] = tc.last[i] ^ cipherIV[i]
		}
		block.Encrypt(c[:], c[:])
		p, err := aesScheme{}.decrypt(k.data().secret, 0, c[:])
		if tc.want < 0 && !errors.Is(err, errWrongKey) || tc.want >= 0 && (err != nil || len(p) != tc.want) {
			t.Errorf("%s: %d bytes, %v", name, len(p), err)
		}
	}
}

// A newer release may put kinds of keys into a file that nobody here knows. The file, and
// the other entries, are good; the entry is written back as it was, and using it says why
// it cannot be used.
// Matrix: AU-23
func TestAnUnknownKindIsTheErrorOfItsEntryAlone(t *testing.T) {
	p := append(make([]byte, keyHeadSize), bytes.Repeat([]byte{0xa5}, 40)...)
	p[0], p[10] = 9, 40
	text := base64.StdEncoding.EncodeToString(p)
	ring, err := ReadKeyring(strings.NewReader("[client.new]\n\tkey = " + text + "\n[client.admin]\n\tkey = " + vectorEntityKey + "\n"))
	must(t, err)
	if e, ok := ring.Lookup(admin); !ok || e.Key.base64() != vectorEntityKey {
		t.Error("the entry that is known is lost")
	}
	e, ok := ring.Lookup(wire.EntityName{Type: wire.Client, ID: "new"})
	if !ok || e.Key.IsZero() || e.Key.kind() != 9 || e.Key.base64() != text {
		t.Fatalf("entry of an unknown kind: %v %v", ok, e.Key.kind())
	}
	var out bytes.Buffer
	_, err = ring.WriteTo(&out)
	must(t, err)
	if !strings.Contains(out.String(), text) {
		t.Error("the entry is not written back")
	}
	_, errClient := NewClient(ClientConfig{Name: e.Name, Key: e.Key})
	_, errSeal := e.Key.seal(useTicket, nil, nil, nil)
	_, errOpen := e.Key.open(useTicket, make([]byte, 64))
	_, errParse := ParseKey(text)
	c := newCluster(t, func(cfg *AuthorityConfig) { cfg.Entities = ring })
	peer, err := NewClient(ClientConfig{Name: e.Name, Key: c.authority.nobody})
	must(t, err)
	_, _, _, errLogin := connect(peer, c.mon, wires{})
	for what, err := range map[string]error{
		"client": errClient, "encryption": errSeal, "decryption": errOpen, "text": errParse, "login": errLogin,
	} {
		if !errors.Is(err, errKeyType) || !strings.Contains(err.Error(), "type 9") {
			t.Errorf("%s: %v", what, err)
		}
	}
	secret := e.Key.data().secret
	ring.Wipe()
	if !overwritten(secret) {
		t.Error("the key of an unknown kind is not wiped")
	}
}

// Neither the keys of whole entries nor that of the entry under way outlive a file that fails.
func TestAKeyringThatFailsLeavesNoKey(t *testing.T) {
	for _, end := range []string{"nonsense", "key = ????", "[client.a]", "\xff", "[osd.2]\n"} {
		p := keyringParser{ring: new(Keyring)}
		var secrets [][]byte
		text := fmt.Sprintf("[client.a]\nkey = %s\n[osd.1]\nkey = %s\n", newKey(t, AES).base64(), newKey(t, AES256K).base64())
		look := readerFunc(func([]byte) (int, error) { // the parser has the lines before
			secrets = [][]byte{p.ring.entities[wire.EntityName{Type: wire.Client, ID: "a"}].Key.data().secret, p.cur.Key.data().secret}
			return 0, io.EOF
		})
		if ring, err := p.read(io.MultiReader(strings.NewReader(text), look, strings.NewReader(end))); err == nil || ring != nil {
			t.Errorf("%q: %v, %v", end, ring, err)
		}
		if len(secrets) != 2 {
			t.Fatalf("%q: it was not read to its end", end)
		}
		wantOverwritten(t, secrets...)
	}
}

// readerFunc is a function as a Reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
