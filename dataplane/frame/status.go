package frame

// late_status of revision 1 counts in its low nibble, late_flags of revision 0
// in bit 0 (Ceph's frames_v2.h).
const (
	lateComplete    = 0x0E
	lateAborted     = 0x01
	lateMask        = 0x0F
	lateFlagAborted = 0x01
)

// lateByte is the late status of a sender that never gives a frame up.
func lateByte(rev Revision) byte {
	if rev == Rev0 {
		return 0
	}
	return lateComplete
}

// parseLate reads the byte.
func parseLate(rev Revision, b byte) (aborted bool, err error) {
	if rev == Rev0 {
		return b&lateFlagAborted != 0, nil
	}
	switch b & lateMask {
	case lateComplete:
		return false, nil
	case lateAborted:
		return true, nil
	}
	return false, errLateStatus
}
