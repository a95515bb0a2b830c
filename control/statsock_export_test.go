package control

// BindPrivate is how ListenPrivate makes its socket.
var BindPrivate = bindPrivate
