package door

// OwnBytes is what each guest may hold of bytes that its handshake has sent and
// received, however much the others hold. Real handshakes take two or three
// thousand.
const OwnBytes = 8 << 10

// Hold says that the handshake of a guest is about to keep n more bytes. What a
// guest holds beyond OwnBytes comes out of Config.Bytes, which all share; Hold
// returns false if there is no room left, and then counts nothing. Leave gives all of
// it back.
func (g *Guest) Hold(n int) bool {
	if g == nil {
		return true
	}
	beyond := max(g.held+int64(n)-OwnBytes, 0) - max(g.held-OwnBytes, 0)
	if beyond <= 0 {
		g.held += int64(n) // nobody else has to know
		return true
	}
	d := g.door
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.gone || d.cfg.Bytes > 0 && d.beyond+beyond > d.cfg.Bytes {
		d.counters.Memory++
		return false
	}
	g.held += int64(n)
	d.beyond += beyond
	return true
}

// release gives back what a guest holds. The lock is held.
func (d *Door) release(g *Guest) {
	d.beyond -= max(g.held-OwnBytes, 0)
	g.held = 0
}

// Beyond is what all guests hold beyond what is their own, in bytes.
func (d *Door) Beyond() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.beyond
}
