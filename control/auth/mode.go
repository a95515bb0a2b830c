package auth

import (
	"fmt"
	"slices"
)

// PickMode makes the acceptor's choice (Ceph's AuthRegistry.cc): the first of the connector's
// preferred modes that is allowed. Method [None] has no keys and can only have [CRC]. Without a
// common mode it returns an error wrapping [ErrNoMode].
func PickMode(m Method, preferred, allowed []Mode) (Mode, error) {
	for _, mode := range preferred {
		if m == None && mode != CRC {
			continue
		}
		if slices.Contains(allowed, mode) {
			return mode, nil
		}
	}
	return 0, fmt.Errorf("%w: peer prefers %v, allowed are %v with method %v", ErrNoMode, preferred, allowed, m)
}

// CheckMode makes the connector's verification of AUTH_DONE: the acceptor must have
// chosen a mode that was offered, and one that the method can have. It returns an error
// wrapping [ErrDowngrade] otherwise.
func CheckMode(m Method, offered []Mode, chosen Mode) error {
	if !slices.Contains(offered, chosen) || m == None && chosen != CRC {
		return fmt.Errorf("%w: offered %v with method %v, got %v", ErrDowngrade, offered, m, chosen)
	}
	return nil
}
