//! The wire crate from outside: valid, hostile and golden bytes.

mod damage;
mod examples;
mod fetch;
mod golden;
mod group_examples;
mod groups;
mod hostile;
mod replica;
mod replies;
mod requests;
