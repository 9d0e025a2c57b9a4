pub(super) mod conformance;
