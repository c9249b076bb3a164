//! Compiles the `.proto` files with protox, so that nobody has to install protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    const FILES: [&str; 3] = [
        "proto/barnabas/v1/control.proto",
        "proto/barnabas/v1/admin.proto",
        "proto/barnabas/v1/page.proto",
    ];
    for file in FILES {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
