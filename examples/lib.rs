//! See the files beside this one; this package has no library of its own.
