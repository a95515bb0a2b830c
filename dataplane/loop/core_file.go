package loop

import "fmt"

// CoreFile is a file that every core of a plane has open: the cores of New, and the cores that
// AddCore adds. Make it before the plane, and have Config.Started be, or call, its Open. Each
// core closes it at its end. It does not keep a core that is being removed, but a request on it
// does. It must not be copied.
type CoreFile struct {
	// Path is that of the file of a core, by its number, which one that is added later may have
	// again. All cores may share one.
	Path    func(core int) string
	Options FileOptions

	on Local[coreFile]
}

// coreFile is the state of a CoreFile on one core.
type coreFile struct {
	f      *File
	renews bool // it is being opened anew
}

// Open opens the file on c, which has no work yet that the disk could delay. In
// Config.Started only.
func (s *CoreFile) Open(c *Core) error {
	d, err := openFile(c.cfg.Disk, s.Path(c.id), s.Options)
	if err != nil {
		return err
	}
	f, err := c.AttachFile(d)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	s.keep(c, f)
	return nil
}

func (s *CoreFile) keep(c *Core, f *File) {
	f.stays = true
	c.staying++
	s.on.Of(c).f = f
}

// On is the file of core c, nil before Open. After the end of the core it takes no request. On
// the core, or in a task of a core that is gone.
func (s *CoreFile) On(c *Core) *File { return s.on.Of(c).f }

// Renew closes the file of c and opens it anew off the core, for example after a failed sync
// (PoisonError). Until then On is the old file, which takes no request. opened is called once, on
// the core or after its end, never within this call; it gets an error if the old file stays.
// While a Renew is under way, another does nothing. On the core.
func (s *CoreFile) Renew(c *Core, opened func(c *Core, err error)) {
	own := s.on.Of(c)
	if own.renews {
		return
	}
	own.renews = true
	own.f.Close()
	c.OpenFile(s.Path(c.id), s.Options, func(c *Core, f *File, err error) {
		if own.renews = false; err == nil {
			s.keep(c, f)
		}
		opened(c, err)
	})
}
