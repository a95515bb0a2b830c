package door

// OwnBytes is the number of sent and received bytes that each guest may hold, however much
// the others hold. Real handshakes take two or three thousand.
const OwnBytes = 8 << 10

// Hold says that the handshake of a guest is about to keep n more bytes. Bytes beyond
// OwnBytes come out of Config.Bytes, which all guests share; Hold returns false if there is
// no room left, and then counts nothing. Leave gives all bytes back.
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

// release gives back the bytes of a guest. The lock is held.
func (d *Door) release(g *Guest) {
	d.beyond -= max(g.held-OwnBytes, 0)
	g.held = 0
}
