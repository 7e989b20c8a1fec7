//! The store from outside: what it promises, and what the world does to it.

mod conformance;
mod support;
