//! Health check of a container: asks whether the service that listens on this machine answers.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// Timeout of each of connecting, writing and reading.
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BYTES: u64 = 64 * 1024;

/// Asks for `path` at the address that a service listens on; one that listens on every address is asked on
/// the loopback's. Errors: no answer in time, or another status than 200: its first line and its body.
pub fn ask(listen: SocketAddr, path: &str) -> Result<(), String> {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let address = SocketAddr::new(ip, listen.port());
    let text = exchange(address, path).map_err(|error| format!("http://{address}{path}: {error}"))?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let line = head.lines().next().unwrap_or_default();
    if line.split(' ').nth(1) == Some("200") {
        return Ok(());
    }
    Err(format!("http://{address}{path}: {line} {}", body.trim()))
}

fn exchange(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::{io::BufRead as _, io::BufReader, net::TcpListener, thread};

    use super::*;

    #[test]
    fn only_an_answer_of_200_is_healthy() {
        for (listens, answer, expected) in [
            ("127.0.0.1:0", "HTTP/1.1 200 OK\r\n\r\nok", Ok(())),
            ("0.0.0.0:0", "HTTP/1.1 200 OK\r\n\r\n", Ok(())),
            (
                "127.0.0.1:0",
                "HTTP/1.1 503 Service Unavailable\r\n\r\nno block\n",
                Err("HTTP/1.1 503 Service Unavailable no block"),
            ),
            ("127.0.0.1:0", "", Err(" ")),
            ("127.0.0.1:0", "SSH-2.0-200\r\n", Err("SSH-2.0-200 ")),
        ] {
            let listener = TcpListener::bind(listens).unwrap();
            let listen = listener.local_addr().unwrap();
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
                let first = lines.next();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                stream.write_all(answer.as_bytes()).unwrap();
                first
            });
            let asked = ask(listen, "/livez");
            let expected =
                expected.map_err(|words| format!("http://127.0.0.1:{}/livez: {words}", listen.port()));
            assert_eq!(asked, expected);
            assert_eq!(server.join().unwrap().as_deref(), Some("GET /livez HTTP/1.1"));
        }
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
        assert!(ask(free, "/livez").unwrap_err().contains("refused"));
    }
}
