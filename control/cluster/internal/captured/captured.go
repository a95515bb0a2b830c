// Package captured reads the messages of real daemons and tools that the tests of
// the clients of a cluster are held against.
package captured

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"testing"
)

// Message is a captured message.
type Message struct {
	Note        string // what it is
	Type        uint16
	Version     uint16
	Compat      uint16 `json:"compat_version"`
	TID         uint64
	Front, Data Hex
}

// Conversation are messages between librados and a real cluster, in one operation of a user.
type Conversation struct {
	Label    string
	Ret      *int32
	Messages []Message
}

// Hex are bytes that stand in JSON as hexadecimal digits.
type Hex []byte

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hex) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// Unzip reads a file that is compressed. What is wrong fails the test.
func Unzip(t testing.TB, path string) []byte {
	t.Helper()
	p, err := Gunzip(path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return p
}

// Gunzip is Unzip without a test.
func Gunzip(path string) ([]byte, error) {
	packed, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// Read reads testdata/messages.json of the package under test. An error fails the test.
func Read(t testing.TB) []Message {
	t.Helper()
	text, err := os.ReadFile("testdata/messages.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []Message }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

// Epoch is a map of a monitor, and the change that leads to it.
type Epoch struct {
	Epoch     uint32
	Inc, Full []byte
}

// Chain reads a compressed file of epochs, one after the other.
func Chain(t testing.TB, path string) (list []Epoch) {
	t.Helper()
	for lines := json.NewDecoder(bytes.NewReader(Unzip(t, path))); lines.More(); {
		var e Epoch
		if err := lines.Decode(&e); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// Conversations reads a compressed file of them.
func Conversations(t testing.TB, path string) (list []Conversation) {
	t.Helper()
	if err := json.Unmarshal(Unzip(t, path), &list); err != nil {
		t.Fatal(err)
	}
	return list
}
