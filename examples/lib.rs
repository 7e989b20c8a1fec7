//! The examples are the files beside this one. What is here has the compiler check the README.
#![doc = include_str!("../README.md")]
