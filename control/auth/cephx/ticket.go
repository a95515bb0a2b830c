package cephx

import (
	"fmt"
	"io"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

const (
	structVersion     = 1
	authTicketVersion = 2
	historicAUID      = ^uint64(0)
	// monSecretID in a ticket stands for the key of "mon." itself.
	monSecretID = ^uint64(0)
	// maxTicketBlob bounds the tickets that are kept; real ones have some hundred bytes.
	maxTicketBlob = 64 << 10
)

// ticket is a ticket as its owner sees it: encrypted under the service secret secretID.
type ticket struct {
	secretID uint64
	blob     []byte
}

func (t ticket) isZero() bool { return len(t.blob) == 0 }

func (t ticket) appendTo(dst []byte) []byte {
	dst = append(dst, structVersion)
	dst = le.AppendUint64(dst, t.secretID)
	return wire.AppendBlob(dst, t.blob)
}

// readTicket reads a ticket, and copies its blob.
func readTicket(r *wire.Reader) ticket {
	readVersion(r, "ticket", structVersion)
	t := ticket{secretID: r.U64()}
	blob := r.Blob()
	if len(blob) > maxTicketBlob {
		r.Fail(malformed(fmt.Sprintf("ticket of %d bytes", len(blob))))
	}
	if r.Err() != nil {
		return ticket{}
	}
	t.blob = append([]byte(nil), blob...)
	return t
}

// readVersion reads the version byte of a structure, which says how it begins. Versions
// above the known one only append.
func readVersion(r *wire.Reader, what string, least uint8) uint8 {
	v := r.U8()
	if r.Err() == nil && v < least {
		r.Fail(malformed(fmt.Sprintf("%s of version %d", what, v)))
	}
	return v
}

// ticketContent is the content of a ticket, which a service decrypts.
type ticketContent struct {
	name       wire.EntityName
	globalID   uint64
	created    time.Time
	expires    time.Time
	allowAll   bool
	caps       []byte // encoded: a string again, or empty
	sessionKey Key
}

func (c *ticketContent) appendTo(dst []byte) []byte {
	dst = append(dst, structVersion)
	dst = append(dst, authTicketVersion)
	dst = c.name.AppendTo(dst)
	dst = le.AppendUint64(dst, c.globalID)
	dst = le.AppendUint64(dst, historicAUID)
	dst = wire.AppendUtime(dst, c.created)
	dst = wire.AppendUtime(dst, c.expires)
	dst = append(dst, structVersion)
	dst = wire.AppendBool(dst, c.allowAll)
	dst = wire.AppendBlob(dst, c.caps)
	dst = le.AppendUint32(dst, 0) // flags
	return c.sessionKey.appendTo(dst)
}

func readTicketContent(r *wire.Reader) ticketContent {
	var c ticketContent
	readVersion(r, "ticket content", structVersion)
	readVersion(r, "auth ticket", authTicketVersion)
	c.name = r.EntityName()
	c.globalID = r.U64()
	r.U64() // historic
	c.created = r.Utime()
	c.expires = r.Utime()
	readVersion(r, "caps info", structVersion)
	c.allowAll = r.Bool()
	c.caps = append([]byte(nil), r.Blob()...)
	r.U32() // flags
	c.sessionKey = readKey(r)
	if r.Err() != nil {
		return ticketContent{}
	}
	return c
}

// effectiveCaps returns the encoded capabilities that the ticket gives.
func (c *ticketContent) effectiveCaps() []byte {
	if c.allowAll {
		return encodeCaps("allow *")
	}
	return c.caps
}

// sealTicket makes the ticket under a service secret.
func sealTicket(secretID uint64, secret Key, c *ticketContent, r io.Reader) (ticket, error) {
	plain := c.appendTo(nil)
	defer clear(plain)
	blob, err := secret.seal(useTicket, nil, plain, r)
	return ticket{secretID, blob}, err
}

// openTicket is the service's side of sealTicket.
func openTicket(t ticket, secret Key) (ticketContent, error) {
	var c ticketContent
	err := secret.openDecode(useTicket, t.blob, func(r *wire.Reader) { c = readTicketContent(r) })
	return c, err
}

// grant is "part A": the key and the life of a ticket, for its owner.
type grant struct {
	sessionKey Key
	validity   time.Duration
}

func (g grant) appendTo(dst []byte) []byte {
	dst = append(dst, structVersion)
	dst = g.sessionKey.appendTo(dst)
	dst = le.AppendUint32(dst, uint32(g.validity/time.Second))
	return le.AppendUint32(dst, uint32(g.validity%time.Second))
}

func readGrant(r *wire.Reader) grant {
	readVersion(r, "ticket grant", structVersion)
	k := readKey(r)
	v := time.Duration(r.U32())*time.Second + time.Duration(r.U32())
	if r.Err() != nil {
		k.Wipe()
		return grant{}
	}
	return grant{k, v}
}

// encodeCaps returns capabilities as tickets hold them: a string, or no bytes.
func encodeCaps(text string) []byte {
	if text == "" {
		return nil
	}
	return wire.AppendString(nil, text)
}

// CapsText decodes the capabilities of a [auth.Result], such as "allow *"; "" if there
// are none.
func CapsText(caps []byte) (string, error) {
	if len(caps) == 0 {
		return "", nil
	}
	r := wire.NewReader(caps)
	s := r.Str()
	if err := r.Err(); err != nil {
		return "", fmt.Errorf("capabilities: %w", err)
	}
	return s, nil
}
