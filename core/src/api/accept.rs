//! Content negotiation (RFC 9110, section 12.5.1): a verdict as JSON, or signed as a token.

/// The media type of a signed verdict (RFC 7519, section 10.3.1).
pub const JWT_TYPE: &str = "application/jwt";

/// The media type of a stream of server-sent events.
pub const EVENTS_TYPE: &str = "text/event-stream";

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON.
    Json,
    /// A signed token.
    Token,
}

/// Returns the form that a client prefers; `None` if it accepts only a token and there is none.
///
/// A token is for clients that name `application/jwt`. A client that accepts neither form gets JSON, as it
/// does elsewhere.
pub fn form(accept: &str, has_token: bool) -> Option<Form> {
    let (mut token, mut json, mut any) = (0, None, None);
    for range in accept.split(',') {
        let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
        let is = |known: &str| name.trim().eq_ignore_ascii_case(known);
        if is(JWT_TYPE) {
            token = quality(parameters);
        } else if is("application/json") {
            json = Some(quality(parameters));
        } else if is("application/*") || (is("*/*") && any.is_none()) {
            any = Some(quality(parameters));
        }
    }
    let json = json.or(any).unwrap_or(0);
    match token > 0 {
        true if has_token && token >= json => Some(Form::Token),
        true if json == 0 && !has_token => None,
        _ => Some(Form::Json),
    }
}

/// Returns whether a header such as `Accept` or `Accept-Encoding` names exactly this with a weight above 0.
pub fn names(header: &str, wanted: &str) -> bool {
    header.split(',').any(|range| {
        let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
        name.trim().eq_ignore_ascii_case(wanted) && quality(parameters) > 0
    })
}

/// Parses the weight among a media range's parameters, in thousandths.
fn quality(parameters: &str) -> u32 {
    let weight = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| thousandths(value.trim()))
    });
    weight.unwrap_or(1_000)
}

/// Parses a weight from 0 to 1 with up to three decimals, in thousandths; 0 for anything else.
fn thousandths(weight: &str) -> u32 {
    let (whole, decimals) = weight.split_once('.').unwrap_or((weight, ""));
    let is_weight = matches!(whole, "0" | "1") && decimals.len() <= 3;
    if !is_weight || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    let thousandths = format!("{whole}{decimals:0<3}").parse().unwrap_or(0);
    if thousandths > 1_000 { 0 } else { thousandths }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_for_clients_that_name_it() {
        for (accept, signed, unsigned) in [
            ("", Some(Form::Json), Some(Form::Json)),
            ("*/*", Some(Form::Json), Some(Form::Json)),
            ("application/*", Some(Form::Json), Some(Form::Json)),
            ("text/html", Some(Form::Json), Some(Form::Json)),
            ("application/json", Some(Form::Json), Some(Form::Json)),
            ("application/jwt", Some(Form::Token), None),
            ("Application/JWT ; q=0.5", Some(Form::Token), None),
            ("application/jwt;q=0", Some(Form::Json), Some(Form::Json)),
            ("application/jwt, application/json", Some(Form::Token), Some(Form::Json)),
            ("application/jwt;q=0.8, application/json", Some(Form::Json), Some(Form::Json)),
            ("application/json;q=0.8, application/jwt", Some(Form::Token), Some(Form::Json)),
            ("application/jwt, */*;q=0.1", Some(Form::Token), Some(Form::Json)),
            ("application/jwt, application/json;q=0", Some(Form::Token), None),
            ("application/jwt, application/json;q=0, */*", Some(Form::Token), None),
            ("application/jwt;q=0.9, */*;q=0.1, application/*", Some(Form::Json), Some(Form::Json)),
            ("application/jwt;q=x", Some(Form::Json), Some(Form::Json)),
        ] {
            assert_eq!((form(accept, true), form(accept, false)), (signed, unsigned), "{accept}");
        }
    }

    #[test]
    fn weights_have_three_decimals_at_most() {
        let good = [("1", 1_000), ("1.000", 1_000), ("0.5", 500), ("0.123", 123), ("0", 0)];
        let bad = ["1.001", "0.1234", "2", "-1", "0.+5", ""].map(|text| (text, 0));
        for (text, expected) in good.into_iter().chain(bad) {
            assert_eq!(thousandths(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_named_and_not_refused_is_accepted() {
        for (header, wanted, expected) in [
            ("gzip", "gzip", true),
            ("deflate, GZIP", "gzip", true),
            ("br;q=1.0, gzip;q=0.8", "gzip", true),
            ("gzip;q=0", "gzip", false),
            ("xgzip", "gzip", false),
            ("*", "gzip", false),
            ("", "gzip", false),
            ("text/html, Text/Event-Stream;q=0.9", "text/event-stream", true),
            (" text/event-stream ", "text/event-stream", true),
            ("text/event-stream;charset=utf-8", "text/event-stream", true),
            ("application/json, text/event-stream;q=0", "text/event-stream", false),
            ("text/event-stream; q=0.000", "text/event-stream", false),
            ("text/*", "text/event-stream", false),
            ("text/event-streams", "text/event-stream", false),
        ] {
            assert_eq!(names(header, wanted), expected, "{header}");
        }
    }
}
