// The docker plugin: the provider that the official plugin bridges, over the same bridge.
package main

import (
	"encoding/json"
	"os"
	"slices"

	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge/info"
	shimv2 "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim/sdk-v2"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/cmdutil"
	"github.com/terraform-providers/terraform-provider-docker/shim"
)

// version is set by the build, to that of the Python package.
var version string

func main() {
	provider := provider()
	if slices.Contains(os.Args[1:], "-inputs") {
		if err := json.NewEncoder(os.Stdout).Encode(inputs(provider)); err != nil {
			cmdutil.ExitError(err.Error())
		}
		return
	}
	tfbridge.Main("docker", version, provider, nil)
}

// provider names resources and fields as the official plugin does; tests hold it against the Python package.
func provider() info.Provider {
	token := func(name string) tokens.Type { return tfbridge.MakeResource("docker", "index", name) }
	provider := info.Provider{
		P:       shimv2.NewProvider(shim.NewProvider()),
		Name:    "docker",
		Version: version,
		Config: map[string]*info.Schema{
			"registry_auth": {Name: "registryAuth", MaxItemsOne: tfbridge.False()},
		},
		Resources: map[string]*info.Resource{
			"docker_container": {
				Tok:                 token("Container"),
				DeleteBeforeReplace: true,
				Fields: map[string]*info.Schema{
					"command":           {Name: "command"},
					"networks_advanced": {Name: "networksAdvanced"},
				},
			},
			"docker_image":   {Tok: token("RemoteImage"), Fields: map[string]*info.Schema{"name": {Name: "name"}}},
			"docker_network": {Tok: token("Network")},
			"docker_tag":     {Tok: token("Tag")},
			"docker_volume":  {Tok: token("Volume")},
		},
	}
	provider.SetAutonaming(255, "-")
	return provider
}
