package wire

// CompressionRequest is the payload of COMPRESSION_REQUEST.
type CompressionRequest struct {
	Compress  bool     // the connector wants compression
	Preferred []uint32 // methods, most preferred first
}

// AppendTo appends the payload.
func (c CompressionRequest) AppendTo(dst []byte) []byte {
	return AppendU32s(AppendBool(dst, c.Compress), c.Preferred)
}

// DecodeCompressionRequest reads the payload of COMPRESSION_REQUEST.
func DecodeCompressionRequest(p []byte) (CompressionRequest, error) {
	r := NewReader(p)
	c := CompressionRequest{Compress: r.Bool(), Preferred: r.U32s()}
	return c, wrap("COMPRESSION_REQUEST", r.Err())
}

// CompressionDone is the payload of COMPRESSION_DONE.
type CompressionDone struct {
	Compress bool   // a method was found
	Method   uint32 // it; 0 is none
}

// AppendTo appends the payload.
func (c CompressionDone) AppendTo(dst []byte) []byte {
	return le.AppendUint32(AppendBool(dst, c.Compress), c.Method)
}

// DecodeCompressionDone reads the payload of COMPRESSION_DONE.
func DecodeCompressionDone(p []byte) (CompressionDone, error) {
	r := NewReader(p)
	c := CompressionDone{Compress: r.Bool(), Method: r.U32()}
	return c, wrap("COMPRESSION_DONE", r.Err())
}
