//! `shardwise health`: is the service on this machine ready? For images that hold no shell and no curl.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use clap::Args;
use thiserror::Error;

/// How long the service may take to answer about itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// Enough for the status line.
const STATUS_LINE_BYTES: u64 = 64;

/// `shardwise health`.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Where the service listens.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub address: String,
    /// `/livez`: the process answers. `/readyz`: it can also reach its database.
    #[arg(long, value_name = "PATH", default_value = "/livez")]
    pub path: String,
}

/// Why the service is not well.
#[derive(Debug, Error)]
pub enum Unwell {
    #[error("{address}: {source}")]
    Unreachable { address: String, source: std::io::Error },
    #[error("{address} is no address")]
    NoAddress { address: String },
    #[error("{path} answered `{status}`")]
    Status { path: String, status: String },
}

/// Ask once.
///
/// # Errors
/// [`Unwell`] unless the answer is 200.
pub fn check(args: &HealthArgs) -> Result<(), Unwell> {
    let unreachable = |source| Unwell::Unreachable { address: args.address.clone(), source };
    let address = args
        .address
        .to_socket_addrs()
        .map_err(unreachable)?
        .next()
        .ok_or_else(|| Unwell::NoAddress { address: args.address.clone() })?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(unreachable)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(unreachable)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(unreachable)?;
    let ask = format!("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", args.path, args.address);
    stream.write_all(ask.as_bytes()).map_err(unreachable)?;
    let mut answer = Vec::new();
    stream.take(STATUS_LINE_BYTES).read_to_end(&mut answer).map_err(unreachable)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        Ok(())
    } else {
        Err(Unwell::Status { path: args.path.clone(), status: status.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answered_with(answer: &'static str) -> Result<(), Unwell> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a caller");
            let _ = stream.read(&mut [0; 256]).expect("a question");
            stream.write_all(answer.as_bytes()).expect("answered");
        });
        let outcome = check(&HealthArgs { address, path: "/readyz".to_owned() });
        server.join().expect("served");
        outcome
    }

    #[test]
    fn only_200_is_well() {
        assert!(answered_with("HTTP/1.1 200 OK\r\n\r\n").is_ok());
        assert!(matches!(
            answered_with("HTTP/1.1 503 Service Unavailable\r\n\r\n"),
            Err(Unwell::Status { .. })
        ));
        assert!(matches!(answered_with(""), Err(Unwell::Status { .. })));
        let nobody = HealthArgs { address: "127.0.0.1:1".to_owned(), path: "/livez".to_owned() };
        assert!(matches!(check(&nobody), Err(Unwell::Unreachable { .. })));
    }
}
