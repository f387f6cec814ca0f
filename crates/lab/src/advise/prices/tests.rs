use super::*;

/// What is no price, or the price of something else, is refused in a sentence.
#[test]
fn prices_are_read() {
    let whole = "currency = \"EUR a month\"\nhost_core = 12\ntarget_core = 9.5\n[port]\ntcp = 15\n";
    let prices: Prices = whole.parse().expect("prices");
    assert_eq!((prices.host_core, prices.target_core), (12.0, 9.5));
    assert_eq!(prices.port.get("tcp"), Some(&15.0));
    for (from, to, why) in [
        ("= 12", "= -1", "host_core: -1 is no price"),
        ("= 12", "= nan", "host_core: NaN is no price"),
        ("= 12", "= 1e300", "is no price (0 to 1e12)"),
        ("EUR", "\\u001b[2J", "currency: expected"),
        ("tcp =", "rdna =", "port: \"rdna\" is no transport, did you mean rdma?"),
        ("host_core", "host_cores", "unknown field `host_cores`"),
        ("target_core = 9.5\n", "", "missing field `target_core`"),
    ] {
        let error = whole.replace(from, to).parse::<Prices>().expect_err(to);
        assert!(error.contains(why), "{error}");
    }
}
