//! Tests of the replica, named after the rules they prove.
