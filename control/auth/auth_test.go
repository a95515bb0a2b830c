package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"
)

func TestPickModeFollowsTheConnector(t *testing.T) {
	for _, c := range []struct {
		method             Method
		preferred, allowed []Mode
		want               Mode // 0: ErrNoMode
	}{
		{Cephx, []Mode{Secure, CRC}, []Mode{CRC, Secure}, Secure},
		{Cephx, []Mode{CRC, Secure}, []Mode{Secure, CRC}, CRC},
		{Cephx, []Mode{Secure, CRC}, []Mode{CRC}, CRC},
		{Cephx, []Mode{CRC}, []Mode{Secure}, 0},
		{Cephx, nil, []Mode{Secure, CRC}, 0},
		{Cephx, []Mode{7, 0}, []Mode{Secure, CRC}, 0},
		{None, []Mode{Secure, CRC}, []Mode{Secure, CRC}, CRC},
		{None, []Mode{Secure}, []Mode{Secure, CRC}, 0},
		{None, []Mode{CRC}, []Mode{Secure}, 0},
	} {
		got, err := PickMode(c.method, c.preferred, c.allowed)
		if got != c.want || (c.want == 0) != errors.Is(err, ErrNoMode) {
			t.Errorf("%v, preferred %v, allowed %v: %v, %v", c.method, c.preferred, c.allowed, got, err)
		}
	}
	if err := CheckMode(None, []Mode{CRC, Secure}, Secure); !errors.Is(err, ErrDowngrade) {
		t.Errorf("method none in mode secure: %v", err)
	}
}

func TestErrnoIsAlwaysNegative(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int32
	}{
		{&Refused{Errno: EPERM}, EPERM},
		{fmt.Errorf("entity: %w", &Refused{Errno: EINVAL, Reason: "x"}), EINVAL},
		{&Refused{Errno: 5}, EACCES},
		{&Refused{}, EACCES},
		{ErrNoMethod, EOPNOTSUPP},
		{fmt.Errorf("%w: secure only", ErrNoMode), EOPNOTSUPP},
		{ErrBusy, ebusy},
		{io.ErrUnexpectedEOF, EACCES},
	} {
		if got := Errno(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestRefusedMatchesByErrno(t *testing.T) {
	err := fmt.Errorf("mon.a: %w", &Refused{Errno: EACCES, Reason: "wrong key"})
	if !errors.Is(err, &Refused{}) || !errors.Is(err, &Refused{Errno: EACCES}) || errors.Is(err, &Refused{Errno: EPERM}) {
		t.Error("wrong match")
	}
	if got, want := err.Error(), "mon.a: authentication refused: permission denied: wrong key"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := (&Refused{Errno: -110}).Error(), "authentication refused: result -110"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTextForms(t *testing.T) {
	names := map[Method]Mode{None: CRC, Cephx: Secure}
	text, _ := json.Marshal(names)
	var back map[Method]Mode
	if err := json.Unmarshal(text, &back); err != nil || !maps.Equal(back, names) || string(text) != `{"cephx":"secure","none":"crc"}` {
		t.Errorf("%s: %v, %v", text, back, err)
	}
	for _, s := range []string{"", "CRC", "gss", "mode(1)"} {
		if err := new(Method).UnmarshalText([]byte(s)); !errors.Is(err, errSyntax) {
			t.Errorf("method %q: %v", s, err)
		}
		if err := new(Mode).UnmarshalText([]byte(s)); !errors.Is(err, errSyntax) {
			t.Errorf("mode %q: %v", s, err)
		}
	}
	for s, want := range map[string]string{"secure crc": "[secure crc]", "crc": "[crc]", "crc, secure": "[crc secure]"} {
		if got, err := ParseModes(s); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", " ,", "crc crc", "crc none"} {
		if got, err := ParseModes(s); !errors.Is(err, errSyntax) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	if got := Method(4).String() + Mode(9).String(); got != "method(4)mode(9)" {
		t.Error(got)
	}
}

func TestWipeOverwritesTheSecrets(t *testing.T) {
	key, secret := []byte{1, 2, 3}, []byte{4, 5, 6}
	r := &Result{SessionKey: key, ConnectionSecret: secret, GlobalID: 7}
	r.Wipe()
	r.Wipe()
	(*Result)(nil).Wipe()
	if string(key) != "\x00\x00\x00" || string(secret) != "\x00\x00\x00" || r.SessionKey != nil || r.ConnectionSecret != nil {
		t.Errorf("left: %v %v %+v", key, secret, r)
	}
	if r.GlobalID != 7 {
		t.Error("only the secrets are wiped")
	}
}

func ExamplePickMode() {
	// A connector that prefers encryption meets an acceptor that allows both.
	mode, err := PickMode(Cephx, []Mode{Secure, CRC}, []Mode{CRC, Secure})
	fmt.Println(mode, err)
	// Output: secure <nil>
}

func TestBadMethodNeverLooksLikeSuccess(t *testing.T) {
	for _, c := range []struct {
		result  int32
		methods []Method
		is      []error
	}{
		{EOPNOTSUPP, []Method{None}, []error{ErrNoMethod, &Refused{Errno: EOPNOTSUPP}}},
		{EOPNOTSUPP, []Method{Cephx}, []error{ErrNoMode, &Refused{Errno: EOPNOTSUPP}}},
		{EACCES, []Method{None, Cephx}, []error{&Refused{Errno: EACCES}}},
		{0, []Method{Cephx}, []error{&Refused{Errno: EACCES}}},
		{1 << 30, []Method{Cephx}, []error{&Refused{Errno: EACCES}}},
		{-1 << 31, []Method{Cephx}, []error{&Refused{Errno: -1 << 31}}},
		{EACCES, nil, []error{ErrNoMethod}},
	} {
		err := BadMethod(Cephx, c.result, c.methods, []Mode{CRC})
		for _, want := range c.is {
			if !errors.Is(err, want) {
				t.Errorf("result %d, methods %v: %v is not %v", c.result, c.methods, err, want)
			}
		}
	}
}
