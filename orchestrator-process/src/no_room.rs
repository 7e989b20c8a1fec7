//! Which errors of the system say that there is no room now, and may be some later.

use std::io;

/// Whether the system ran out of something that comes back.
pub(crate) fn is_no_room(err: &io::Error) -> bool {
    matches!(
        err.raw_os_error(),
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ETXTBSY)
    )
}
