package keylog

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestWhatIsAppendedIsRead(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 64)
	file := append([]byte("# keys\n\n"), Append(nil, []byte("one"), secret)...)
	file = Append(file, []byte("two"), bytes.Repeat([]byte{8}, 40))
	if short := Append(nil, []byte("three"), secret[:39]); len(short) > 0 {
		t.Errorf("a line of a secret that is too short: %q", short)
	}
	k, err := Read(bytes.NewReader(file))
	if err != nil || k.Len() != 2 {
		t.Fatalf("%d keys, %v", k.Len(), err)
	}
	if got := k.Secret([]byte("one")); !bytes.Equal(got, secret[:40]) {
		t.Errorf("secret %x", got)
	}
	if got := k.Secret([]byte("three")); got != nil {
		t.Errorf("a secret of a connection that is not there: %x", got)
	}
	var none *Keys
	if none.Len() != 0 || none.Secret([]byte("one")) != nil {
		t.Error("no file has keys")
	}
}

func TestADamagedKeyLogIsRefusedWithItsLine(t *testing.T) {
	good := string(Append(nil, []byte("one"), bytes.Repeat([]byte{7}, 40)))
	for _, bad := range []string{"MSGR2_SECRET 00", strings.Replace(good, "0", "x", 1), strings.Replace(good, "MSGR2", "TLS", 1),
		strings.TrimSpace(good) + " more", strings.Repeat("x", 300)} {
		if _, err := Read(strings.NewReader(good + bad)); !errors.Is(err, ErrSyntax) {
			t.Errorf("%q: %v", bad, err)
		} else if len(bad) < maxLine && !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v does not say which line", bad, err)
		}
	}
}
