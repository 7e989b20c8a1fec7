//! An allocator that counts what is in use.
//!
//! It hands on each of the four calls: what the trait would make of two of them, by new memory that is
//! filled or copied to, is not what a program without it pays.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static IN_USE: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with a counter.
pub(crate) struct Counting;

// SAFETY: every call goes to the system's allocator unchanged, so its guarantees are these.
#[expect(unsafe_code, reason = "an allocator that counts is the only honest way to count")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and `at` came from `System`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same there.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        IN_USE.fetch_add(size as u64, Ordering::Relaxed);
        IN_USE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`, and `at` came from `System`.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Bytes in use now.
pub(crate) fn in_use() -> u64 {
    IN_USE.load(Ordering::Relaxed)
}
