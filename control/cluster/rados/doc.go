// Package rados is a client of a cluster's object store, RADOS, over a messenger. It is pure Go: no librados,
// no cgo, and no goroutine or thread for an operation.
//
// [Dial] connects and returns a [Cluster]; a program that has a messenger of its own uses [New]. Cluster.Pool
// finds a [Pool], a cheap value from which others are derived: with a namespace, a locator, a snapshot to
// read, the snapshots that writes keep, or flags. Pool.Object names an [Object], whose methods are
// operations:
//
//	pool, err := cluster.Pool(ctx, "data")
//	o := pool.WithNamespace("invoices").Object("2026-11")
//	err = o.Append(ctx, line)
//	text, err := o.ReadAll(ctx)
//
// Several steps on one object, which happen together or not at all, are a [ReadOp] or a [WriteOp], carried
// out by Object.Operate, or by Object.Start for callers that have no goroutine to wait. Object.File has the
// interfaces of package io. Pool.Objects lists a namespace, and Pool.Cursors cuts a list into parts for
// several goroutines.
//
// # Behaviour
//
// The client holds the map of the cluster and places each operation itself. An operation waits for an OSD
// that can serve it, is sent again where the map has its object move or a connection breaks, and is carried
// out at most once, whatever happens: an append is never there twice. Operations of one goroutine on one
// object keep their order; but while a write waits for room in the cluster or its pool, reads of the object go on and
// see the state before it, as with librados, unless they have OrderReads. Nothing ends by itself: a context
// bounds how long an operation waits. What is under way is bounded (Options); others wait in line.
//
// # Errors
//
// All errors of operations are an *[Error], which tells the object, its pool and the OSD, and wraps two
// others. One is the outcome: [ErrNotSent] and [ErrRefused] say that nothing has changed, [ErrUnknown] that
// nobody knows. The other is the reason: an errno of the cluster (errors.Is with syscall.ENOENT, or
// fs.ErrNotExist), or the cause of the context; the text then says what was waited for. Data that was given
// to a write belongs to the caller again, but never after ErrUnknown, as the message may still read it: a mapping
// then stays mapped until Close.
//
// # For users of go-ceph
//
//	go-ceph: Conn                             here
//	NewConn, its kinds, Connect               Dial
//	ReadConfigFile, ParseCmdLineArgs, ...     nothing is read from files, arguments or the environment
//	SetConfigOption, GetConfigOption          the fields of Config
//	Shutdown                                  Cluster.Close
//	GetFSID, PingMonitor                      Cluster.Mon().MonMap().FSID, nothing
//	GetInstanceID, GetAddrs                   Cluster.InstanceID, nothing
//	WaitForLatestOSDMap                       Cluster.WaitForLatestOSDMap
//	MonCommand, MonCommandWithInputBuffer     Cluster.Mon().Command, CommandWith
//	MonCommandTarget                          a Cluster with this monitor alone in its Config
//	ListPools, MakePool, DeletePool           Cluster.Pools, CreatePool, Pool.Delete
//	OpenIOContext, GetPoolByName, ...ByID     Cluster.Pool, Pool.ID, Name
//	GetClusterStats, GetPoolStats             Cluster.Mon().Command of "df", as JSON
//	MgrCommand, OsdCommand, PGCommand         nothing: only monitors are asked
//
//	go-ceph: IOContext                        here
//	Destroy                                   nothing is to be released
//	SetNamespace, GetNamespace, SetLocator    Pool.WithNamespace, WithLocator: they return another Pool
//	SetPoolFullTry, UnsetPoolFullTry          Pool.WithFlags of FullTry
//	GetPoolName, GetPoolID                    Pool.Name, ID
//	Read, Write, WriteFull, Append            Object.ReadInto, Write, WriteFull, Append
//	Create, Truncate, Delete, Stat            Object.Create, Truncate, Remove, Stat
//	GetXattr, SetXattr, RmXattr, ListXattrs   Object.Xattr, SetXattr, RemoveXattr, Xattrs
//	SetOmap, RmOmapKeys, CleanOmap            Object.SetOmap, RemoveOmap, ClearOmap
//	ListOmapValues, Get(All)OmapValues        Object.Omap, an iterator over all pages
//	ListObjects, Iter                         Pool.Objects, an iterator
//	Iter: Seek, Token                         Pool.Cursors and List; a list cannot be left and resumed
//	LockExclusive, LockShared                 Object.Lock
//	Unlock, ListLockers, BreakLock            Object.Unlock, Lockers, BreakLock
//	CreateSnap, RemoveSnap                    Pool.CreateSnap, RemoveSnap
//	ListSnaps, GetSnapName, GetSnapStamp      Pool.Snaps: names and times come with them
//	LookupSnap, RollbackSnap, SetReadSnap     Pool.LookupSnap, Object.Rollback, Pool.WithSnap
//	Watch(WithTimeout), Notify(WithTimeout)   Object.Watch, Notify; a watch is renewed by itself
//	Watcher: Events, Errors, Check            Handler.Notified, whose result is the Ack; Lost; Watch.Confirmed
//	Watcher: ID, Delete; Conn: WatcherFlush   Watch.Cookie, Close; nothing
//	Checksum                                  ReadOp.Checksum
//	SetAllocationHint                         WriteOp.AllocHint, without flags
//	Alignment, RequiresAlignment              nothing
//	GetLastVersion                            the version that Object.Operate returns
//
//	go-ceph: ReadOp, WriteOp                  here
//	CreateReadOp, CreateWriteOp, Release      the zero values of ReadOp and WriteOp; nothing is to be released
//	AssertExists, AssertVersion               the same of ReadOp and WriteOp
//	Read, GetOmapValues, its ByKeys           ReadOp.Read, Omap, OmapByKeys
//	Create, Write, WriteFull, WriteSame       the same of WriteOp
//	Remove, SetXattr, SetOmap                 the same of WriteOp
//	RmOmapKeys, CleanOmap                     WriteOp.RemoveOmap, ClearOmap
//	CmpExt, SetAllocationHint                 WriteOp.CompareExtent, AllocHint
//	Exec, and Bytes of its step               ReadOp.Exec, Result.Value
//	Operate, and its flags                    Object.Operate, Pool.WithFlags
//	OperateWithMtime                          WriteOp.SetTime
//	OperationError, ErrNotFound, ...          Result.Err; errors.Is with fs.ErrNotExist, fs.ErrExist, syscall.ENODATA, ...
//
// Different: each call takes a context, and without a deadline waits as librados does. A read of more than an
// object has is no error, and File.ReadAt returns io.EOF with it. Large reads and writes are cut in pieces
// (PieceSize). The version of an object comes with the operation, not from a state that all goroutines share.
// CompareExtent tells the byte that differs by a *MismatchError.
package rados
