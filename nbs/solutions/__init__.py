"""One module for each chapter with the solutions of its exercises; readers' notebooks do not contain them."""
