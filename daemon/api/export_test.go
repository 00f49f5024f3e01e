package api

// RouteIDs names what the mux serves, for the test that compares it with the document.
func RouteIDs() (ids []string) {
	for _, rt := range (&api{}).routes() {
		ids = append(ids, rt.id)
	}
	return ids
}
