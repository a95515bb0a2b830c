package simnet

// stream is a queue of bytes, in the pieces in which they came: bytes are
// copied when they are written and when they are read, never between.
type stream struct {
	pieces [][]byte
	head   int // first piece that is not taken
	size   int
}

// push appends p, which it keeps.
func (s *stream) push(p []byte) {
	if len(p) == 0 {
		return
	}
	if s.head == len(s.pieces) {
		s.pieces, s.head = s.pieces[:0], 0
	}
	s.pieces = append(s.pieces, p)
	s.size += len(p)
}

// join moves everything of t behind s.
func (s *stream) join(t *stream) {
	for t.size > 0 {
		s.push(t.take(t.size))
	}
}

// take removes at most n bytes from the front, in one piece.
func (s *stream) take(n int) []byte {
	if s.size == 0 || n <= 0 {
		return nil
	}
	p := s.pieces[s.head]
	if n < len(p) {
		s.pieces[s.head] = p[n:]
		s.size -= n
		return p[:n:n]
	}
	s.pieces[s.head] = nil
	s.head++
	s.size -= len(p)
	return p
}

// read moves bytes into p and returns how many.
func (s *stream) read(p []byte) (n int) {
	for n < len(p) && s.size > 0 {
		n += copy(p[n:], s.take(len(p)-n))
	}
	return n
}

// clear drops everything.
func (s *stream) clear() { *s = stream{} }
