// Package tap is the seam at which the frames of connections are seen as they pass:
// those of the handshake and those of the data phase, of both directions, in clear.
//
// A messenger that is configured with a Tracer asks it for a Tap for every socket,
// and tells that of each banner and frame. The packages handshake and dataplane take
// a Tap that is nil without a tracer, which costs one comparison for each frame.
//
// A tap sees and does not disturb: for that there is package probe. Package
// control/trace has a Tracer that writes a file.
package tap
