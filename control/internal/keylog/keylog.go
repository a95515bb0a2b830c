package keylog

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Label is what each line begins with.
const Label = "MSGR2_SECRET"

const (
	idSize     = 16
	secretSize = 40
	maxLine    = 256
	// MaxKeys is how many connections a file may have.
	MaxKeys = 1 << 20
)

// ErrSyntax is wrapped by the errors of Read about what a file holds.
var ErrSyntax = errors.New("no key log")

// id names the connection whose AUTH_DONE has this payload.
func id(authDone []byte) (k [idSize]byte) {
	sum := sha256.Sum256(authDone)
	copy(k[:], sum[:])
	return k
}

// Append appends the line of one connection to dst. secret is its connection secret,
// of at least 40 bytes; with less there is no line.
func Append(dst, authDone, secret []byte) []byte {
	if len(secret) < secretSize {
		return dst
	}
	k := id(authDone)
	dst = append(append(dst, Label...), ' ')
	dst = append(hex.AppendEncode(dst, k[:]), ' ')
	return append(hex.AppendEncode(dst, secret[:secretSize]), '\n')
}

// Keys are those of a file. The nil Keys have none.
type Keys struct {
	secrets map[[idSize]byte][secretSize]byte
}

// Len is how many connections there are.
func (k *Keys) Len() int {
	if k == nil {
		return 0
	}
	return len(k.secrets)
}

// Secret is the secret of the connection whose AUTH_DONE has this payload, in the form
// that frame.KeysFromSecret takes; nil if it was not logged.
func (k *Keys) Secret(authDone []byte) []byte {
	if k == nil {
		return nil
	}
	s, ok := k.secrets[id(authDone)]
	if !ok {
		return nil
	}
	return s[:]
}

// Read reads a file. Its errors wrap ErrSyntax, and say in which line, or are those of
// r.
func Read(r io.Reader) (*Keys, error) {
	k := &Keys{secrets: make(map[[idSize]byte][secretSize]byte)}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if err := k.add(bytes.Fields(line)); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrSyntax, maxLine)
	} else if err != nil {
		return nil, err
	}
	return k, nil
}

func (k *Keys) add(words [][]byte) error {
	if len(words) != 3 || string(words[0]) != Label || len(words[1]) != 2*idSize || len(words[2]) != 2*secretSize {
		return fmt.Errorf("%w: want %s ID SECRET", ErrSyntax, Label)
	}
	var id [idSize]byte
	var secret [secretSize]byte
	_, err1 := hex.Decode(id[:], words[1])
	_, err2 := hex.Decode(secret[:], words[2])
	if err1 != nil || err2 != nil {
		return fmt.Errorf("%w: want ID and SECRET in hex", ErrSyntax)
	}
	if len(k.secrets) == MaxKeys {
		return fmt.Errorf("%w: more than %d connections", ErrSyntax, MaxKeys)
	}
	k.secrets[id] = secret
	return nil
}
